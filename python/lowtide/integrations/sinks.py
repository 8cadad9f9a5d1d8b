"""Where figures go: anything with ``add_scalar(name, value, step)`` (TensorBoard's SummaryWriter) or ``log(dict, step=)``
(a W&B run, MLflow-like trackers). No library is imported."""


def send(sink, values, step):
    """Hands a dict of numbers to the sink."""
    numbers = {name: value for name, value in values.items() if isinstance(value, (int, float))}
    if hasattr(sink, "add_scalar"):
        for name, value in numbers.items():
            sink.add_scalar(name, value, step)
    elif hasattr(sink, "log"):
        sink.log(numbers, step=step)
    else:
        raise TypeError(f"{type(sink).__name__} has neither add_scalar nor log")
