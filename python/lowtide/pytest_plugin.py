"""pytest: `@pytest.mark.lowtide(no_leak=True, steps=200)` and the fixture `lowtide_steps`.

    @pytest.mark.lowtide(no_leak=True, steps=200)
    def test_train_step(model, batch):      # called 200 times with the same fixtures: one call is one step
        train_step(model, batch)

    def test_loop(lowtide_steps):           # or the test has the loop, and its variables are looked at too
        history = []
        for step in lowtide_steps(200):
            history.append(train_step())

The test fails with `lowtide.LeakError`, which names the holder and its line, when something grows in each half of the
steps by about the same. `limit` (bytes per step, default 512) is what is let pass. Three censuses are taken, each as long
as a garbage collection; the first third of the steps is warm-up.
"""

import gc

import pytest

_LIMIT = 512


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "lowtide(no_leak=True, steps=200, limit=512): the test is one step; it is called `steps` times, and fails "
                   "when memory grows by more than `limit` bytes per step, naming who holds it")


class _Looks:
    """Three censuses over a number of steps, and what grew in both spans between them."""

    def __init__(self, steps, limit):
        from lowtide._census import Census

        self.census, self.limit, self.rows = Census(), limit, []
        self.marks = (max(1, steps // 3), max(2, 2 * steps // 3), max(3, steps))

    def after(self, step):
        if step not in self.marks:
            return
        gc.collect()
        if step == self.marks[0]:
            fine = self.census.first(step)
        else:
            self.rows.append([dict(row) for row in self.census.second(step, keep=True)])
            fine = self.census.trouble is None
        if not fine:
            pytest.skip(f"lowtide cannot walk this process: {self.census.trouble}")

    def leaks(self):
        if len(self.rows) < 2:
            return []
        earlier = {(row["path"], row["root"].split(" at ")[0]): row["bytes_per_step"] for row in self.rows[0]}
        found = []
        for row in self.rows[1]:
            before = earlier.get((row["path"], row["root"].split(" at ")[0]), 0)
            now = row["bytes_per_step"]
            if min(before, now) >= self.limit and min(before, now) >= 0.4 * max(before, now):
                found.append(row)
        return found

    def check(self):
        leaks = self.leaks()
        if leaks:
            from lowtide._why import LeakError

            raise LeakError(leaks)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    marker = pyfuncitem.get_closest_marker("lowtide")
    if marker is None or not marker.kwargs.get("no_leak", True) or "lowtide_steps" in pyfuncitem.fixturenames:
        return None
    steps = max(3, int(marker.kwargs.get("steps", 200)))
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    looks = _Looks(steps, marker.kwargs.get("limit", _LIMIT))
    for step in range(1, steps + 1):
        pyfuncitem.obj(**arguments)
        looks.after(step)
    looks.check()
    return True


@pytest.fixture
def lowtide_steps(request):
    """`for step in lowtide_steps(200):` in a test; the test fails at its end when memory grows from step to step."""
    marker = request.node.get_closest_marker("lowtide")
    limit = marker.kwargs.get("limit", _LIMIT) if marker else _LIMIT
    looked = []

    def steps(count=200):
        looks = _Looks(max(3, count), limit)
        looked.append(looks)
        for step in range(1, count + 1):
            yield step
            looks.after(step)
        looks.check()

    yield steps
