"""LT510: a learning rate that stays at 0 while the run goes on."""
from lowtide.gradients_findings import evidence, finding, place

LEAST_STEPS = 50   # that the rate has been 0
LEAST_CHECKS = 3


def idle(watched, site):
    """Findings on the rates of an optimizer, at one of its checks. ``site``: (file, line) of its backward, or None."""
    optimizer = watched.optimizer()
    groups = optimizer.param_groups if optimizer is not None else []
    if not groups or not all(_is_zero(group.get("lr")) for group in groups):
        watched.idle_since, watched.idle_checks = None, 0
        return []
    if watched.idle_since is None:
        watched.idle_since = watched.steps
    watched.idle_checks += 1
    steps = watched.steps - watched.idle_since
    if watched.idle_checks < LEAST_CHECKS or steps < LEAST_STEPS:
        return []
    file, line = site or (None, None)
    return [finding(
        "LT510", "warning",
        f"the learning rate of {watched.kind} has been 0 since step {watched.idle_since} at the latest: {steps} steps have changed nothing",
        zh=f"{watched.kind} 的学习率最迟自第 {watched.idle_since} 步起一直为 0：已有 {steps} 步没有任何效果",
        where=[place(file, line, path=f"{watched.kind}.param_groups[*]['lr']", first_step=watched.idle_since)],
        evidence=[evidence("steps", steps)],
        help="the schedule has come to its end: give it as many steps as the run has (total_iters, T_max; count steps where it "
             "counts steps), give it a floor (eta_min), or end the run there",
        help_zh="学习率调度已结束：让其步数与训练一致（total_iters、T_max），设置下限（eta_min），或在此结束训练",
        parts=("idle",))]


def _is_zero(rate):
    if isinstance(rate, (int, float)):
        return rate == 0
    return getattr(rate, "is_cpu", False) and rate.numel() == 1 and float(rate) == 0
