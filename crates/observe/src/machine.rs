//! The machine: what it is, and how busy it was.

use std::{env::consts::ARCH, fs, path::Path, thread, time::Duration};

use procfs::{CpuInfo, CurrentSI, FromRead, KernelStats, Meminfo, process::MountInfos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    load::{Peak, rate},
    resources::MachineUse,
};

const UNKNOWN: &str = "unknown";

/// The machine a result was measured on. It holds nothing that names the machine or its owner.
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

/// Describes this machine, and the filesystem on which `data` is or would be created.
#[must_use]
pub fn machine(data: &Path) -> Machine {
    Machine {
        cpu: cpu_model(),
        cores: KernelStats::current().map_or_else(|_| usable_cores(), |stats| cores(&stats)),
        memory_bytes: Meminfo::from_file("/proc/meminfo").map_or(0, |memory| memory.mem_total),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
            .map_or_else(|_| UNKNOWN.to_owned(), |release| release.trim().to_owned()),
        filesystem: filesystem(data).unwrap_or_else(|| UNKNOWN.to_owned()),
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

fn usable_cores() -> u64 {
    thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

/// The type of the mount with the longest path above `data`; of those at one path, the last made.
fn filesystem(data: &Path) -> Option<String> {
    let absolute = std::path::absolute(data).ok()?;
    let real = absolute.ancestors().find_map(|path| path.canonicalize().ok())?;
    let real = escaped(real.to_str()?);
    let mounts = MountInfos::from_file("/proc/self/mountinfo").ok()?;
    mounts
        .into_iter()
        .filter(|mount| Path::new(&real).starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.components().count())
        .map(|mount| mount.fs_type)
}

/// A path as the kernel writes it in `mountinfo`.
fn escaped(path: &str) -> String {
    path.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012")
}

/// Watches how busy the machine is.
pub(crate) struct MachineWatch {
    first: Cpu,
    last: Cpu,
    peak: Peak,
    pressure: [Option<u64>; 5],
}

impl MachineWatch {
    pub(crate) fn start(every: Duration) -> Self {
        let now = Cpu::read().unwrap_or_default();
        Self { first: now, last: now, peak: Peak::new(every), pressure: pressure() }
    }

    /// Reads the CPU counters, the last reading being `seconds` old.
    pub(crate) fn look(&mut self, seconds: f64) {
        let now = Cpu::read().unwrap_or(self.last);
        self.peak.add(now.busy_since(self.last), seconds);
        self.last = now;
    }

    /// What was used in the `seconds` up to now.
    pub(crate) fn result(&self, seconds: f64) -> MachineUse {
        let now = pressure();
        let percent = |which: usize| {
            let (from, to) = (self.pressure.get(which)?, now.get(which)?);
            let stalled = Duration::from_micros((*to)?.saturating_sub((*from)?));
            Some((100.0 * rate(stalled.as_secs_f64(), seconds)).min(100.0))
        };
        let cpu_mean = rate(self.last.busy_since(self.first), seconds);
        let stolen = self.last.stolen.zip(self.first.stolen).map(|(to, from)| to.saturating_sub(from));
        MachineUse {
            cpu_mean,
            cpu_max: self.peak.max(cpu_mean),
            cores: self.last.cores.max(1),
            steal_mean: stolen.map(|ticks| rate(seconds_of(ticks), seconds)),
            pressure_cpu_some: percent(0),
            pressure_io_some: percent(1),
            pressure_io_full: percent(2),
            pressure_memory_some: percent(3),
            pressure_memory_full: percent(4),
        }
    }
}

/// CPU counters of the machine, in ticks.
#[derive(Clone, Copy, Default)]
struct Cpu {
    busy: u64,
    stolen: Option<u64>,
    cores: u64,
}

impl Cpu {
    fn read() -> Option<Self> {
        let stats = KernelStats::current().ok()?;
        let total = &stats.total;
        let interrupts = total.irq.unwrap_or(0) + total.softirq.unwrap_or(0);
        // time given to guests is part of user time already
        let busy = total.user + total.nice + total.system + interrupts;
        Some(Self { busy, stolen: total.steal, cores: cores(&stats) })
    }

    fn busy_since(self, earlier: Self) -> f64 {
        seconds_of(self.busy.saturating_sub(earlier.busy))
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

/// The total of the line `kind` of a pressure file. (procfs cannot read the file of a kernel that
/// lacks one of the lines.)
fn stalled(file: &str, kind: &str) -> Option<u64> {
    let line = file.lines().find(|line| line.starts_with(kind))?;
    line.split_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pressure_file_may_lack_a_line() {
        let old = "some avg10=0.00 avg60=0.00 avg300=0.00 total=42\n";
        assert_eq!((stalled(old, "some"), stalled(old, "full")), (Some(42), None));
        assert_eq!(stalled("", "some"), None);
    }

    #[test]
    fn the_filesystem_of_a_path_yet_to_be_made_is_that_of_its_parent() {
        let proc = filesystem(Path::new("/proc/self"));
        assert_eq!(proc.as_deref(), Some("proc"));
        assert_eq!(filesystem(Path::new("/proc/no such/directory")), proc);
        assert_eq!(escaped("/a b\\c"), "/a\\040b\\134c");
    }
}
