//! The machine: its description, and how busy it was.

use std::{
    env::consts::ARCH,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use procfs::{CpuInfo, CurrentSI, FromRead, KernelStats, Meminfo, process::MountInfos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    load::{Peak, rate},
    resources::MachineUse,
};

const UNKNOWN: &str = "unknown";

/// The machine that a result was measured on. Nothing in it identifies the machine or its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Model of the CPU, or the architecture where the kernel does not name a model.
    pub cpu: String,
    /// Logical CPUs online.
    pub cores: u64,
    /// Memory of the machine, in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Release of the kernel, or `unknown`.
    pub kernel: String,
    /// Type of the filesystem that holds the data (`ext4`, `tmpfs`), or `unknown`.
    pub filesystem: String,
}

/// Whether what is written to a filesystem of this type goes to disks of this machine, where the kernel counts it. What goes over a
/// network, or to another program, is not counted there.
#[must_use]
pub fn writes_to_disks(filesystem: &str) -> bool {
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay"].contains(&filesystem)
}

/// Describes this machine, and the filesystem on which `data` is or would be created.
#[must_use]
pub fn machine(data: &Path) -> Machine {
    Machine {
        cpu: cpu_model(),
        cores: KernelStats::current().map_or_else(|_| usable_cores().into(), |stats| cores(&stats)),
        memory_bytes: Meminfo::from_file("/proc/meminfo").map_or(0, |memory| memory.mem_total),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
            .map_or_else(|_| UNKNOWN.to_owned(), |release| release.trim().to_owned()),
        filesystem: filesystem(data).map_or_else(|| UNKNOWN.to_owned(), |found| found.kind),
    }
}

fn cpu_model() -> String {
    let model =
        CpuInfo::from_file("/proc/cpuinfo").ok().and_then(|info| info.model_name(0).map(str::to_owned));
    model.unwrap_or_else(|| ARCH.to_owned())
}

fn cores(stats: &KernelStats) -> u64 {
    stats.cpu_time.len() as u64
}

/// How many cores this process may use; 1 where that is not known.
#[must_use]
pub fn usable_cores() -> u32 {
    thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX))
}

/// What a folder lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its type, as the kernel names it: `ext4`, `tmpfs`, `nfs4`.
    pub kind: String,
    /// Whether it is an overlay mounted with `volatile`, which leaves out every sync.
    pub is_volatile: bool,
}

/// The file system on which `data` is or would be created: that of the mount with the longest path above it; of several at one
/// path, the one mounted last. None where the kernel does not tell.
#[must_use]
pub fn filesystem(data: &Path) -> Option<FileSystem> {
    let real = escaped(nearest(data)?.to_str()?);
    let mounts = MountInfos::from_file("/proc/self/mountinfo").ok()?;
    mounts
        .into_iter()
        .filter(|mount| Path::new(&real).starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.components().count())
        .map(|mount| FileSystem {
            is_volatile: mount.fs_type == "overlay" && mount.super_options.contains_key("volatile"),
            kind: mount.fs_type,
        })
}

/// The path, or the nearest one above it that is there, without links.
pub(crate) fn nearest(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    absolute.ancestors().find_map(|path| path.canonicalize().ok())
}

/// A path as the kernel writes it in `mountinfo`.
fn escaped(path: &str) -> String {
    path.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012")
}

/// Watches how busy the machine is.
pub(crate) struct MachineWatch {
    /// `None` where the kernel does not report idle time.
    first: Option<CpuReading>,
    last: Option<CpuReading>,
    peak: Peak,
    pressure: [Option<u64>; 5],
    disks: Option<DiskWrites>,
}

impl MachineWatch {
    pub(crate) fn start(every: Duration) -> Self {
        let pressure = pressure();
        let now = CpuReading::now();
        Self { first: now, last: now, peak: Peak::new(every), pressure, disks: DiskWrites::now() }
    }

    /// Reads the CPU counters.
    pub(crate) fn look(&mut self) {
        let Some(now) = CpuReading::now() else { return };
        if let Some(last) = self.last.replace(now) {
            self.peak.add(now.busy_since(&last), now.seconds_since(&last));
        }
    }

    /// Cores kept busy between two readings that this is called after, or since the start.
    pub(crate) fn cores_since(&self, told: &mut Option<CpuReading>) -> Option<f64> {
        let (from, to) = (told.or(self.first)?, self.last?);
        *told = Some(to);
        Some(to.cores_busy_since(&from))
    }

    /// The use between the start and the last reading, which ended a span of `seconds`.
    pub(crate) fn result(&self, seconds: f64) -> MachineUse {
        let now = pressure();
        let percent = |which: usize| {
            let (from, to) = (self.pressure.get(which)?, now.get(which)?);
            let stalled = Duration::from_micros((*to)?.saturating_sub((*from)?));
            Some((100.0 * rate(stalled.as_secs_f64(), seconds)).min(100.0))
        };
        let span = self.first.zip(self.last);
        let cpu_mean = span.map_or(0.0, |(from, to)| to.cores_busy_since(&from));
        let steal_mean = span.and_then(|(from, to)| {
            let ticks = to.stolen?.saturating_sub(from.stolen?);
            Some(rate(seconds_of(ticks), to.seconds_since(&from)))
        });
        MachineUse {
            cpu_mean,
            cpu_max: self.peak.max(cpu_mean),
            cores: self.last.map_or_else(|| usable_cores().into(), |last| last.cores()),
            steal_mean,
            pressure_cpu_some: percent(0),
            pressure_io_some: percent(1),
            pressure_io_full: percent(2),
            pressure_memory_some: percent(3),
            pressure_memory_full: percent(4),
            written_bytes: self.disks.zip(DiskWrites::now()).map(|(from, to)| to.since(&from)),
        }
    }
}

/// What all processes have written to disks since boot, and what waits for that in the page cache, in bytes.
#[derive(Clone, Copy)]
struct DiskWrites {
    sent: u64,
    waiting: u64,
}

impl DiskWrites {
    /// Reads them. None where the kernel does not report them.
    fn now() -> Option<Self> {
        let counters = procfs::vmstat().ok()?;
        let counter = |name: &str| u64::try_from(*counters.get(name)?).ok();
        let pages = counter("nr_dirty")? + counter("nr_writeback")?;
        Some(Self {
            // counted in sectors, and shown in KiB
            sent: counter("pgpgout")?.saturating_mul(1024),
            waiting: pages.saturating_mul(procfs::page_size()),
        })
    }

    /// What was sent since the earlier reading, and what waits more than then.
    fn since(&self, earlier: &Self) -> u64 {
        self.sent.saturating_sub(earlier.sent).saturating_add(self.waiting.saturating_sub(earlier.waiting))
    }
}

/// CPU counters of the machine, in ticks, and when they were read: two of them tell how busy it was between them.
///
/// Busy time is the time that was neither idle nor stolen. The kernel measures how long a core is idle, but it only
/// samples a busy core: the task that runs at the moment of a clock interrupt is charged the whole tick. Work in
/// bursts shorter than a tick falls between interrupts, while each process's own CPU time is measured and includes
/// it. The sum of the sampled counters may therefore be less than what a single process used; the time that was not
/// idle never is.
#[derive(Clone, Copy)]
pub struct CpuReading {
    at: Instant,
    /// Ticks with nothing to do, or waiting for storage, over all cores.
    idle: u64,
    stolen: Option<u64>,
    cores: u64,
}

impl CpuReading {
    /// Reads them. None where the kernel does not report idle time.
    #[must_use]
    pub fn now() -> Option<Self> {
        let stats = KernelStats::current().ok()?;
        Self::of(&stats, Instant::now())
    }

    /// `None` where the counters of idle time stay at zero, as some containers show them.
    fn of(stats: &KernelStats, at: Instant) -> Option<Self> {
        let total = &stats.total;
        let idle = total.idle + total.iowait.unwrap_or(0);
        (idle > 0).then(|| Self { at, idle, stolen: total.steal, cores: cores(stats) })
    }

    /// Logical CPUs online.
    #[must_use]
    pub fn cores(&self) -> u64 {
        self.cores.max(1)
    }

    /// Cores that were busy on average since the earlier reading.
    #[must_use]
    pub fn cores_busy_since(&self, earlier: &Self) -> f64 {
        rate(self.busy_since(earlier), self.seconds_since(earlier))
    }

    fn seconds_since(&self, earlier: &Self) -> f64 {
        (self.at - earlier.at).as_secs_f64()
    }

    /// Busy seconds of CPU since the earlier reading, over all cores.
    fn busy_since(&self, earlier: &Self) -> f64 {
        let idle = self.idle.saturating_sub(earlier.idle);
        let stolen = self.stolen.unwrap_or(0).saturating_sub(earlier.stolen.unwrap_or(0));
        let there = self.seconds_since(earlier) * self.cores as f64;
        (there - seconds_of(idle + stolen)).max(0.0)
    }
}

fn seconds_of(ticks: u64) -> f64 {
    rate(ticks as f64, procfs::ticks_per_second() as f64)
}

/// Microseconds stalled since boot: CPU some, I/O some and full, memory some and full.
fn pressure() -> [Option<u64>; 5] {
    let read = |resource| fs::read_to_string(format!("/proc/pressure/{resource}")).unwrap_or_default();
    let (cpu, io, memory) = (read("cpu"), read("io"), read("memory"));
    [
        stalled(&cpu, "some"),
        stalled(&io, "some"),
        stalled(&io, "full"),
        stalled(&memory, "some"),
        stalled(&memory, "full"),
    ]
}

/// The total of the line `kind` of a pressure file, in microseconds. (The crate `procfs` cannot read the file of a
/// kernel that lacks one of the lines.)
fn stalled(file: &str, kind: &str) -> Option<u64> {
    let line = file.lines().find(|line| line.starts_with(kind))?;
    line.split_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use procfs::{FromReadSI, LocalSystemInfo};

    use super::*;

    /// Two cores for ten seconds: one process used 6.2 s of them in bursts, and the clock's interrupts saw 5.9 s of
    /// that.
    #[test]
    fn what_runs_between_two_interrupts_is_busy_too() {
        let stat = |user: u64, idle: u64, iowait: u64, stolen: u64| {
            let cpus = format!("{user} 0 0 {idle} {iowait} 0 0 {stolen} 0 0");
            let text = format!(
                "cpu  {cpus}\ncpu0 {cpus}\ncpu1 {cpus}\nintr 0\nctxt 0\nbtime 1700000000\nprocesses 1\n\
                 procs_running 1\nprocs_blocked 0\n"
            );
            KernelStats::from_read(text.as_bytes(), &LocalSystemInfo).unwrap()
        };
        let begun = Instant::now();
        let first = CpuReading::of(&stat(1000, 50_000, 100, 0), begun).unwrap();
        let last = begun + Duration::from_secs(10);
        let busy = |now: KernelStats| CpuReading::of(&now, last).unwrap().busy_since(&first);
        assert!((busy(stat(1590, 51_080, 400, 0)) - 6.2).abs() < 1e-9, "by the time that was not idle");
        assert!((busy(stat(1590, 51_080, 400, 20)) - 6.0).abs() < 1e-9, "what was stolen was not used");
        assert!(busy(stat(1000, 52_010, 100, 0)).abs() < 1e-9, "ticks are rounded");
        assert!(CpuReading::of(&stat(0, 0, 0, 0), begun).is_none(), "no idle time was ever counted");
    }

    #[test]
    fn a_pressure_file_may_lack_a_line() {
        let old = "some avg10=0.00 avg60=0.00 avg300=0.00 total=42\n";
        assert_eq!((stalled(old, "some"), stalled(old, "full")), (Some(42), None));
        assert_eq!(stalled("", "some"), None);
    }

    #[test]
    fn the_filesystem_of_a_path_yet_to_be_made_is_that_of_its_parent() {
        let proc = filesystem(Path::new("/proc/self"));
        assert_eq!(proc, Some(FileSystem { kind: "proc".to_owned(), is_volatile: false }));
        assert_eq!(filesystem(Path::new("/proc/no such/directory")), proc);
        assert_eq!(escaped("/a b\\c"), "/a\\040b\\134c");
    }
}
