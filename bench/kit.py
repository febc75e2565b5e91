"""What the comparisons of this folder share: acidtest's side, CPU by the kernel's count, and pairs."""

import contextlib, json, os, resource, shutil, signal, statistics, subprocess, sys, tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))


def cpu_seconds():
    """CPU of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def build():
    """Builds the program that others are compared with."""
    print("building…", file=sys.stderr)
    subprocess.run(["cargo", "build", "--quiet", "--profile", "dist", "-p", "acidtest"], cwd=ROOT, check=True)


def run(*words, **more):
    """Runs a program to its end and gives its output and the CPU seconds that it used."""
    before = cpu_seconds()
    done = subprocess.run(words, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise SystemExit(f"{os.path.basename(sys.argv[0])}: {words[0]} failed:\n{done.stderr}{done.stdout}")
    return done.stdout, cpu_seconds() - before


class Bench:
    """The lab of a comparison, with a server for each store that it needs."""

    def __init__(self, folder, durability):
        self.folder = folder
        self.durability = durability
        self.acidtest = os.path.join(TARGET, "dist", "acidtest")
        os.environ["ACIDTEST_LAB"] = os.path.join(folder, "lab")
        os.mkdir(os.environ["ACIDTEST_LAB"], 0o711)
        self.servers = {}

    def server(self, store):
        if store not in self.servers:
            out, _ = run(self.acidtest, "lab", "up", store, "--durability", self.durability)
            self.servers[store] = out.strip()
        return self.servers[store]

    def down(self):
        subprocess.run([self.acidtest, "lab", "down"], capture_output=True)

    def cells(self, *words, **more):
        """The cells of the result of this command of acidtest."""
        out = os.path.join(self.folder, "result.json")
        # a result that is there is not written over
        with contextlib.suppress(FileNotFoundError):
            os.remove(out)
        subprocess.run([self.acidtest, *words, "--out", out], **more)
        if not os.path.exists(out):
            raise SystemExit(f"{os.path.basename(sys.argv[0])}: no result of {' '.join(words)}")
        with open(out) as file:
            return json.load(file)["cells"]

    def trial(self, workload, store, seconds, *words, warmup=("--warmup", "500ms")):
        """One run of acidtest: its only trial."""
        cells = self.cells("run", workload, "--store", store, "--duration", f"{seconds}s", *warmup, "--quiet", *words, check=True)
        return cells[0]["trials"][0]


def figures_of(trial):
    """Operations a second, and the client's CPU seconds an operation."""
    operations = trial["throughput"] * trial["seconds"]
    client = trial["resources"]["client"]["cpu_seconds"] * trial["seconds"] / trial["resources"]["seconds"]
    return trial["throughput"], client / operations


@contextlib.contextmanager
def started(name, durability, make=Bench):
    """Builds acidtest; its lab and everything in the temporary folder are gone at the end."""
    build()
    folder = tempfile.mkdtemp(prefix=f"acidtest-{name}-")
    # servers that refuse to run as root run as another user, who must get through
    os.chmod(folder, 0o711)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench = make(folder, durability)
    try:
        yield bench
    finally:
        bench.down()
        shutil.rmtree(folder, ignore_errors=True)


def load_average():
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def wanted(name, only):
    return not only or any(word in name for word in only.split(","))


def pairs(name, count, ours, theirs):
    """The figures of both sides in the order A B, B A, …"""
    figures = []
    for pair in range(count):
        print(f"{name}, pair {pair + 1} of {count}", file=sys.stderr)
        if pair % 2 == 0:
            a, b = ours(), theirs()
        else:
            b, a = theirs(), ours()
        figures.append((a, b))
    return figures


def ratio(pairs):
    ratios = [a / b for a, b in pairs]
    return f"{statistics.median(ratios):5.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def head(unit, each):
    print(f"{'':24} {'peer':28} {'acidtest':>10} {'peer':>10}  {'ratio':18} {'acidtest':>10} {'peer':>10}  ratio")
    print(f"{'':24} {'':28} {unit:>10} {unit:>10}  {'':18} {each:>10} {each:>10}")


def row(name, peer, figures):
    """Of pairs of throughput and CPU seconds an operation."""
    median = lambda side, figure: statistics.median(pair[side][figure] for pair in figures)
    rates, cpus = ([(a[i], b[i]) for a, b in figures] for i in (0, 1))
    print(f"{name:24} {peer:28} {median(0, 0):10.0f} {median(1, 0):10.0f}  {ratio(rates):18} "
          f"{median(0, 1) * 1e6:10.2f} {median(1, 1) * 1e6:10.2f}  {ratio(cpus)}", flush=True)


def left_out(name, peer, missing):
    print(f"{name:24} {peer:28} left out: {', '.join(missing)} is not installed", flush=True)
