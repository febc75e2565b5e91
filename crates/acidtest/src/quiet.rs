//! What would spoil the figures of a run, told before its trials: other programs at work, a CPU that is held back, little free
//! memory, and data that lie where a sync is worth less.

use std::time::Duration;

use acidtest_lab::Lab;
use acidtest_model::{Durability, Hosting};
use acidtest_observe::{CpuReading, FileSystem, Frequency, filesystem, frequency};
use acidtest_report::OTHERS;
use acidtest_runner::{Cell, Order};

use crate::needs::Needs;

/// How long a look at what other programs use lasts: some 50 of the kernel's clock ticks.
const LOOK: Duration = Duration::from_millis(500);

/// How many times as long as the look the trials must last for it to be worth its time.
const WORTH: f64 = 10.0;

/// What other programs use of the machine, in cores, before anything of the run is started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Others {
    used: f64,
    cores: u64,
}

impl Others {
    /// Looks for half a second. None where the kernel does not tell.
    pub(crate) async fn look() -> Option<Self> {
        let before = CpuReading::now()?;
        tokio::time::sleep(LOOK).await;
        let now = CpuReading::now()?;
        Some(Self { used: now.cores_busy_since(&before), cores: now.cores() })
    }

    /// Whether they use so much that a trial beside them would be marked.
    pub(crate) fn disturb(self) -> bool {
        self.used >= OTHERS * self.cores as f64
    }

    /// `1.43 of the machine's 2 cores`.
    pub(crate) fn told(self) -> String {
        format!("{:.2} of the machine's {} cores", self.used, self.cores)
    }
}

/// What is known of the machine before runs.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    others: Option<Others>,
    frequency: Option<Frequency>,
    needs: Option<Needs>,
    /// Where private data will lie, if they are to survive the loss of power.
    data: Option<FileSystem>,
}

impl Machine {
    /// That of the machine as it is now, before these are run one after the other. What other programs use is left out where all
    /// that takes hardly longer than the look.
    pub(crate) async fn now(orders: &[(&Order, Needs)]) -> Self {
        let seconds: Option<f64> = orders.iter().map(|(_, needs)| Some(needs.seconds?.0)).sum();
        let is_worth_it = seconds.is_none_or(|least| least >= WORTH * LOOK.as_secs_f64());
        let most = orders.iter().map(|(_, needs)| *needs).max_by_key(|needs| needs.footprint.memory_bytes);
        let syncs = orders.iter().any(|(order, _)| syncs_here(order));
        Self {
            others: if is_worth_it { Others::look().await } else { None },
            frequency: frequency(),
            needs: most,
            data: if syncs { filesystem(&Lab::usual_place()) } else { None },
        }
    }

    /// A line with its remedy for each thing that would spoil the figures; none where all is well.
    pub(crate) fn told(&self) -> Vec<String> {
        let others = self.others.filter(|others| others.disturb()).map(|others| {
            format!(
                "other programs use {}, and what is measured beside them may be their doing: end them, or measure later",
                others.told()
            )
        });
        let lines = [
            others,
            self.frequency.as_ref().and_then(held_back),
            self.needs.and_then(|needs| needs.little_memory()),
            self.data.as_ref().and_then(worth_less),
        ];
        lines.into_iter().flatten().map(|line| format!("note: {line}")).collect()
    }
}

/// Whether a private store is to keep data that survive the loss of power.
fn syncs_here(order: &Order) -> bool {
    let syncs = |cell: &Cell| {
        let target = &order.targets[cell.target];
        let is_private = target.address.is_none() && target.kind().hosting != Hosting::InMemory;
        is_private && cell.durability == Durability::Disk
    };
    order.grid.cells.iter().any(syncs)
}

/// What is said of a CPU that need not run at full speed.
fn held_back(cpu: &Frequency) -> Option<String> {
    let ghz = |khz: u64| format!("{:.1} GHz", khz as f64 / 1e6);
    if cpu.is_limited() {
        let (allowed, highest) = (ghz(cpu.allowed_khz), ghz(cpu.highest_khz));
        return Some(format!(
            "the CPU may run at {allowed} of its {highest}: cpupower frequency-set --max {}kHz",
            cpu.highest_khz
        ));
    }
    (cpu.governor != "performance").then(|| {
        format!(
            "the CPU is not held at its full frequency (governor {}), and figures may differ with how busy it was before: cpupower \
             frequency-set --governor performance",
            cpu.governor
        )
    })
}

/// File systems that keep nothing on a disk, and those whose disk is another machine's.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];
const OVER_NETWORK: [&str; 13] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "9p",
    "ceph",
    "fuse.ceph",
    "fuse.sshfs",
    "fuse.glusterfs",
    "lustre",
    "beegfs",
    "gfs2",
    "afs",
];

/// What is said where a sync of data is worth less than on a disk of this machine.
fn worth_less(on: &FileSystem) -> Option<String> {
    let kind = on.kind.as_str();
    let (place, less) = if IN_MEMORY.contains(&kind) {
        ("in memory", "a sync costs nothing there, and nothing survives the loss of power")
    } else if on.is_volatile {
        (
            "in an overlay mounted volatile",
            "every sync is left out there, and nothing need survive the loss of power",
        )
    } else if OVER_NETWORK.contains(&kind) {
        ("on a network file system", "a sync waits for its server there, and what survives is up to that")
    } else {
        return None;
    };
    Some(format!(
        "the data will lie {place} ({kind}), where durability disk means less: {less}; set ACIDTEST_LAB to a folder on a disk"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(machine: &Machine) -> String {
        machine.told().join("\n")
    }

    #[test]
    fn a_quiet_machine_gives_no_alarm() {
        assert_eq!(told(&Machine::default()), "");
        let full =
            Frequency { governor: "performance".to_owned(), allowed_khz: 3_400_000, highest_khz: 3_400_000 };
        let disk = |kind: &str| Some(FileSystem { kind: kind.to_owned(), is_volatile: false });
        for kind in ["ext4", "xfs", "overlay", "btrfs"] {
            let others = Some(Others { used: 0.49, cores: 2 });
            let machine = Machine { others, frequency: Some(full.clone()), needs: None, data: disk(kind) };
            assert_eq!(told(&machine), "", "{kind}");
        }
    }

    #[test]
    fn each_thing_that_spoils_figures_is_a_line_with_its_remedy() {
        let busy = Machine { others: Some(Others { used: 1.434, cores: 2 }), ..Machine::default() };
        let said = told(&busy);
        assert!(
            said.contains("other programs use 1.43 of the machine's 2 cores") && said.contains(": end them"),
            "{said}"
        );
        let slow = |governor: &str, allowed_khz| Machine {
            frequency: Some(Frequency { governor: governor.to_owned(), allowed_khz, highest_khz: 3_400_000 }),
            ..Machine::default()
        };
        let said = told(&slow("performance", 1_600_000));
        assert!(
            said.contains("at 1.6 GHz of its 3.4 GHz: cpupower frequency-set --max 3400000kHz"),
            "{said}"
        );
        let said = told(&slow("schedutil", 3_400_000));
        assert!(said.contains("(governor schedutil)") && said.contains("--governor performance"), "{said}");
        for (kind, is_volatile, word) in [
            ("tmpfs", false, "in memory (tmpfs)"),
            ("overlay", true, "mounted volatile (overlay)"),
            ("nfs4", false, "on a network file system (nfs4)"),
        ] {
            let data = Some(FileSystem { kind: kind.to_owned(), is_volatile });
            let said = told(&Machine { data, ..Machine::default() });
            assert!(said.contains(word) && said.contains("set ACIDTEST_LAB"), "{said}");
            assert_eq!(said.lines().count(), 1);
        }
    }
}
