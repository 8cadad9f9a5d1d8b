// The page: charts where they are seen, codes that open their page, everything open on paper.
(() => {
  const data = JSON.parse(document.getElementById("lowtide-data").textContent);
  const pick = (ids) => ids.split(",").map((id) => data.series[Number(id)]).filter((series) => series && series.steps.length > 1);

  function start(figure) {
    const choices = figure.childElementCount ? [] : pick(figure.dataset.series);
    if (choices.length) new Chart(figure, choices, data.words);
  }

  for (const place of document.querySelectorAll("[data-spark]")) {
    const [series] = pick(place.dataset.spark);
    if (series) drawSpark(place, series);
  }
  for (const figure of document.querySelectorAll("figure[data-series]")) {
    const closed = figure.closest("details");
    if (closed) closed.addEventListener("toggle", () => { if (closed.open) start(figure); });
    else start(figure);
  }

  function openTarget() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") target.open = true;
  }
  addEventListener("hashchange", openTarget);
  for (const link of document.querySelectorAll("a.code")) link.addEventListener("click", () => setTimeout(openTarget));
  openTarget();

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.pool:not([open])")];
    for (const details of opened) {
      details.open = true;
      for (const figure of details.querySelectorAll("figure[data-series]")) start(figure);
    }
  });
  addEventListener("afterprint", () => { for (const details of opened) details.open = false; });
})();
