//! What would spoil the figures of a run, told before its trials: other programs at work, a CPU that is held back, little free
//! memory, and data that lie where a sync is worth less.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use acidtest_lab::Lab;
use acidtest_model::{Durability, Hosting};
use acidtest_observe::{CpuReading, FileSystem, Frequency, filesystem, frequency};
use acidtest_results::OTHERS;
use acidtest_runner::{Failure, Order};

use crate::{needs::Needs, run_arguments::QuietMachine};

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

/// How long a quiet machine is waited for, at most.
const PATIENCE: Duration = Duration::from_mins(5);

/// How many looks pass between two words on what is waited for: ten seconds.
const TOLD_EVERY: u32 = 20;

/// Whether the machine is quiet: at once, or within the patience of who waits. Otherwise `say` is told why nothing is run. `look`
/// is a look of half a second.
pub(crate) async fn is_quiet(
    how: QuietMachine,
    mut look: impl AsyncFnMut() -> Option<Others>,
    say: &mut dyn FnMut(&str),
) -> Result<bool, Failure> {
    let looks = PATIENCE.as_millis() / LOOK.as_millis();
    let mut last = None;
    for each in 0..u32::try_from(looks).unwrap_or(u32::MAX) {
        let others = look().await.ok_or_else(|| {
            Failure::Usage(
                "--quiet-machine: the kernel does not tell how busy the machine is\n  remedy: leave it out"
                    .to_owned(),
            )
        })?;
        if !others.disturb() {
            return Ok(true);
        }
        last = Some(others);
        if how == QuietMachine::Refuse {
            break;
        }
        if each.is_multiple_of(TOLD_EVERY) {
            say(&format!("waiting for a quiet machine: other programs use {}", others.told()));
        }
    }
    if let Some(others) = last {
        say(&format!(
            "not run: other programs use {} (--quiet-machine)\n  remedy: end them, or leave it out",
            others.told()
        ));
    }
    Ok(false)
}

/// What is known of the machine before runs.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    others: Option<Others>,
    frequency: Option<Frequency>,
    needs: Option<Needs>,
    /// The places of data on this machine.
    data: Vec<(PathBuf, FileSystem)>,
}

impl Machine {
    /// That of the machine as it is now, before these are run one after the other. What other programs use is left out where all
    /// that takes hardly longer than the look, and where each run begins only on a machine that they leave alone.
    pub(crate) async fn now(orders: &[(&Order, Needs)], quiet: Option<QuietMachine>) -> Self {
        let seconds: Option<f64> = orders.iter().map(|(_, needs)| Some(needs.seconds?.0)).sum();
        let is_long = seconds.is_none_or(|least| least >= WORTH * LOOK.as_secs_f64());
        let most = orders.iter().map(|(_, needs)| *needs).max_by_key(|needs| needs.footprint.memory_bytes);
        let places: BTreeSet<PathBuf> = orders.iter().flat_map(|(order, _)| places(order)).collect();
        Self {
            others: if is_long && quiet.is_none() { Others::look().await } else { None },
            frequency: frequency(),
            needs: most,
            data: places.into_iter().filter_map(|place| Some((place.clone(), filesystem(&place)?))).collect(),
        }
    }

    /// Each thing that would spoil the figures, with its remedy; none where all is well.
    pub(crate) fn told(&self) -> Vec<String> {
        let others = self.others.filter(|others| others.disturb()).map(|others| {
            format!(
                "other programs use {}, which may affect what is measured: end them, or wait for a quiet machine \
                 (--quiet-machine)",
                others.told()
            )
        });
        let lines = [
            others,
            self.frequency.as_ref().and_then(held_back),
            self.needs.and_then(|needs| needs.little_memory()),
        ];
        let places = self.data.iter().filter_map(|(place, on)| worth_less(place, on));
        lines.into_iter().flatten().chain(places).collect()
    }
}

/// Where stores on this machine keep data: private ones that are to survive the loss of power in the lab's folder, and embedded ones in
/// the user's own files, at the level that these have.
fn places(order: &Order) -> impl Iterator<Item = PathBuf> {
    order.grid.cells.iter().filter_map(|cell| {
        let target = &order.targets[cell.target];
        match (target.kind().hosting, &target.address) {
            (Hosting::Embedded, Some(address)) => Some(PathBuf::from(&address.path)),
            (Hosting::Embedded | Hosting::Program, None) if cell.durability == Durability::Disk => {
                Some(Lab::usual_place())
            }
            _ => None,
        }
    })
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
            "the CPU is not kept at its full frequency (governor {}), so figures may depend on how busy it was before: \
             cpupower frequency-set --governor performance",
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

/// What is said where a sync of data at this place is worth less than on a disk of this machine.
fn worth_less(at: &Path, on: &FileSystem) -> Option<String> {
    let kind = on.kind.as_str();
    let (lie, less) = if IN_MEMORY.contains(&kind) {
        ("in memory", "a sync costs nothing there, and nothing survives a loss of power")
    } else if on.is_volatile {
        ("in an overlay mounted volatile", "syncs do nothing there, and nothing need survive a loss of power")
    } else if OVER_NETWORK.contains(&kind) {
        ("on a network file system", "a sync there waits for the file server, which decides what survives")
    } else {
        return None;
    };
    Some(if at == Lab::usual_place() {
        format!(
            "the data will be {lie} ({kind}), where durability disk means less: {less}; set ACIDTEST_LAB to a folder on a \
             disk"
        )
    } else {
        format!("{} is {lie} ({kind}): {less}; give a path on a disk", at.display())
    })
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
        let disk =
            |kind: &str| vec![(Lab::usual_place(), FileSystem { kind: kind.to_owned(), is_volatile: false })];
        for kind in ["ext4", "xfs", "overlay", "btrfs"] {
            let others = Some(Others { used: 0.49, cores: 2 });
            let machine = Machine { others, frequency: Some(full.clone()), needs: None, data: disk(kind) };
            assert_eq!(told(&machine), "", "{kind}");
        }
    }

    /// The answer, what was said, and how many looks it took, where other programs use so many of two cores, look by look.
    async fn waited(how: QuietMachine, used: impl Fn(u32) -> f64) -> (bool, Vec<String>, u32) {
        let (mut looks, mut said) = (0, Vec::new());
        let look = async || {
            looks += 1;
            Some(Others { used: used(looks), cores: 2 })
        };
        let quiet = is_quiet(how, look, &mut |line| said.push(line.to_owned())).await.unwrap();
        (quiet, said, looks)
    }

    #[tokio::test]
    async fn a_quiet_machine_is_waited_for_or_a_busy_one_refused() {
        use QuietMachine::{Refuse, Wait};
        for how in [Wait, Refuse] {
            assert_eq!(waited(how, |_| 0.4).await, (true, Vec::new(), 1));
        }
        let (quiet, said, looks) = waited(Refuse, |_| 1.5).await;
        assert!(!quiet && looks == 1 && said[0].starts_with("not run: other programs use 1.50"), "{said:?}");
        let (quiet, said, looks) = waited(Wait, |look| if look < 30 { 1.5 } else { 0.1 }).await;
        assert!(quiet && looks == 30 && said.len() == 2 && said[1].starts_with("waiting"), "{said:?}");
        let (quiet, said, looks) = waited(Wait, |_| 2.0).await;
        assert!(!quiet && looks == 600 && said.last().unwrap().starts_with("not run"), "{said:?}");
        let unknown = is_quiet(Wait, async || None, &mut |_| {}).await;
        assert!(matches!(unknown, Err(Failure::Usage(said)) if said.contains("does not tell")));
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
            let on = FileSystem { kind: kind.to_owned(), is_volatile };
            let data = [Lab::usual_place(), PathBuf::from("/dev/shm/shop.db")].map(|at| (at, on.clone()));
            let said = told(&Machine { data: data.into(), ..Machine::default() });
            let [private, own] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
            assert!(
                private.contains(word) && private.ends_with("set ACIDTEST_LAB to a folder on a disk"),
                "{said}"
            );
            assert!(
                own.starts_with("/dev/shm/shop.db is ") && own.ends_with("give a path on a disk"),
                "{said}"
            );
        }
    }
}
