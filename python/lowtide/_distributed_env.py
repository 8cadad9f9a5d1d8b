"""Which rank this process is, as its launcher says it."""
import collections
import re

Place = collections.namedtuple("Place", "rank world_size local_rank local_world_size reason")

_LAUNCHERS = (
    # name, rank, world size, local rank, local world size
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


def _number(environment, name):
    found = re.match(r"\d+", environment.get(name, ""))
    return int(found.group()) if found else None


def where_am_i(environment=None):
    """The :class:`Place` of this process. One rank alone where no launcher speaks. Raises RuntimeError when the numbers
    contradict each other."""
    import os

    environment = os.environ if environment is None else environment
    for name, rank_name, world_name, local_name, local_world_name in _LAUNCHERS:
        rank, world = _number(environment, rank_name), _number(environment, world_name)
        if rank is None or world is None or (world == 1 and name != "torchrun"):
            continue
        if rank >= world:
            raise RuntimeError(f"{rank_name}={rank} but {world_name}={world}: ranks go from 0 to {world - 1}; start with torchrun "
                               "--nproc-per-node N, or unset both for one rank alone")
        local_world = _number(environment, local_world_name) or _tasks_here(environment, world)
        local = _number(environment, local_name)
        guessed = local is None
        local = rank % local_world if guessed else local
        reason = f"{name} says so ({rank_name}, {world_name})" + (f"; {local_name} is not set, so rank modulo {local_world}" if guessed else "")
        return Place(rank, world, local, local_world, reason)
    return Place(0, 1, 0, 1, "no launcher's variables are set: one rank alone")


def _tasks_here(environment, world):
    """SLURM_TASKS_PER_NODE is "4", "4(x2)" or "4(x2),3"; the first entry is near enough for sharing out cores."""
    return _number(environment, "SLURM_TASKS_PER_NODE") or (world // max(_number(environment, "SLURM_NNODES") or 1, 1)) or 1


def first_host(nodelist):
    """The first name of a SLURM node list: "a[03-07,9],b1" is a03."""
    found = re.match(r"([^,\[]+)(?:\[([^\],-]+))?", nodelist or "")
    return (found.group(1) + (found.group(2) or "")) if found else None


def master_from_slurm(environment):
    """MASTER_ADDR and MASTER_PORT for `srun python train.py`, the same on all ranks; {} outside SLURM."""
    host = first_host(environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", ""))
    if not host:
        return {}
    job = _number(environment, "SLURM_JOB_ID") or 0
    return {"MASTER_ADDR": host, "MASTER_PORT": environment.get("MASTER_PORT", str(20000 + job % 20000))}
