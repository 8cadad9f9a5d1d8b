"""Hosts of a small cluster on one machine: each with its own network, name, processes and memory, joined by a cable."""
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

# Inside: a name, a /dev/shm and a network of its own; process 1 is a shell that passes on how the command ended.
INSIDE = 'hostname "$1" && mount -t tmpfs tmpfs /dev/shm && shift && "$@"; exit $?'


def can_make_hosts():
    """None, or why this machine does not allow it."""
    if os.getuid() != 0:
        return "hosts as network namespaces need root"
    for command in (["ip", "netns", "add", "lowtide-probe"], ["ip", "netns", "del", "lowtide-probe"],
                    ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        except FileNotFoundError:
            return f"{command[0]} is not installed (Debian packages iproute2 and util-linux)"
        if done.returncode:
            return f"this machine allows no namespaces: {' '.join(command)}: {done.stderr.strip()}"
    return None


class Cluster:
    """Two hosts, ``alpha`` and ``beta``, at 10.77.0.1 and 10.77.0.2."""

    names = ("alpha", "beta")

    def __init__(self):
        self.tag = f"lt{os.getpid() % 10000}"
        self.processes = []
        for i, name in enumerate(self.names):
            self._run("ip", "netns", "add", f"{self.tag}{name}")
            if i:
                self._run("ip", "link", "add", "eth7", "netns", f"{self.tag}{self.names[0]}", "type", "veth", "peer", "name", "eth7",
                          "netns", f"{self.tag}{name}")
        for i, name in enumerate(self.names):
            self.link(name, f"10.77.0.{i + 1}/24")

    def _run(self, *command):
        subprocess.run(command, check=True, capture_output=True, timeout=30)

    def link(self, name, address):
        self._run("ip", "-n", f"{self.tag}{name}", "addr", "add", address, "dev", "eth7")
        for device in ("lo", "eth7"):
            self._run("ip", "-n", f"{self.tag}{name}", "link", "set", device, "up")

    def cut(self, name):
        """Pulls the cable."""
        self._run("ip", "-n", f"{self.tag}{name}", "link", "set", "eth7", "down")

    def start(self, name, *command, env):
        with open("/dev/null") as nothing:
            process = subprocess.Popen(["ip", "netns", "exec", f"{self.tag}{name}", "unshare", "--uts", "--pid", "--fork", "--kill-child",
                                        "--mount-proc", "--mount", "sh", "-c", INSIDE, "-", name, *map(str, command)], stdin=nothing,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                       env={**os.environ, **env, "LOWTIDE_TEST_CLUSTER": self.tag, "GLOO_SOCKET_IFNAME": "eth7"})
        self.processes.append(process)
        return process

    def find(self, **variables):
        """Processes of the cluster, as seen from outside, with these environment variables."""
        wanted = {f"{name}={value}".encode() for name, value in {**variables, "LOWTIDE_TEST_CLUSTER": self.tag}.items()}
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                    found.append(int(folder.name))
            except OSError:
                pass
        return found

    def end_runs(self, number=signal.SIGTERM):
        """Sends a signal to every `lowtide run`."""
        for pid in self.find():
            try:
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if command[0].endswith(b"lowtide") and b"run" in command[:3]:
                os.kill(pid, number)

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", f"{self.tag}{name}"], capture_output=True, timeout=30)


def make_cluster():
    why = can_make_hosts()
    if why:
        pytest.skip(why)
    return Cluster()


class Job:
    """One torchrun job over both hosts, each under `lowtide run` with one folder, two ranks a host."""

    def __init__(self, cluster, binary, folder, script, *args):
        self.cluster, self.folder = cluster, folder
        torchrun = [sys.executable, "-m", "torch.distributed.run"]
        env = {"LOWTIDE_PYTHON": sys.executable, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        self.runs = []
        for number, name in enumerate(cluster.names):
            self.runs.append(cluster.start(
                name, binary, "run", "-o", folder, "--", *torchrun, "--nnodes", 2, "--nproc-per-node", 2, "--node-rank", number,
                "--master-addr", "10.77.0.1", "--master-port", 29511, script, *args, env=env))
            time.sleep(0.5)

    def wait(self, seconds=180):
        """What each host's run printed."""
        return [run.communicate(timeout=seconds)[0] for run in self.runs]

    def wait_for_file(self, path, seconds=120):
        deadline = time.monotonic() + seconds
        while not path.exists():
            assert time.monotonic() < deadline, f"{path} did not come: {[run.poll() for run in self.runs]}"
            time.sleep(0.1)

    def rank(self, number):
        """The process of a rank, as seen from outside."""
        (pid,) = self.cluster.find(RANK=number, WORLD_SIZE=4)
        return pid
