//! How the kernel sets the frequency of the CPU.

use std::{fs, path::Path};

/// The rule by which the frequency of a CPU is set, and its range: see `Documentation/admin-guide/pm/cpufreq.rst` of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frequency {
    /// The rule: `performance`, `schedutil`, `powersave`.
    pub governor: String,
    /// The highest frequency that is allowed, in kHz.
    pub allowed_khz: u64,
    /// The highest frequency that the hardware has, in kHz.
    pub highest_khz: u64,
}

impl Frequency {
    /// Whether less is allowed than the hardware has. Drivers round: a hundredth is no limit.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.allowed_khz.saturating_mul(100) < self.highest_khz.saturating_mul(99)
    }
}

/// That of the CPU that is allowed the smallest part of what it has; of those that are allowed as much, of the first whose rule
/// is another than `performance`. None where the kernel tells nothing of it, as in most virtual machines.
#[must_use]
pub fn frequency() -> Option<Frequency> {
    frequency_in(Path::new("/sys/devices/system/cpu/cpufreq"))
}

fn frequency_in(policies: &Path) -> Option<Frequency> {
    let read =
        |policy: &Path, name: &str| Some(fs::read_to_string(policy.join(name)).ok()?.trim().to_owned());
    let of = |policy: &Path| {
        Some(Frequency {
            governor: read(policy, "scaling_governor")?,
            allowed_khz: read(policy, "scaling_max_freq")?.parse().ok()?,
            highest_khz: read(policy, "cpuinfo_max_freq")?.parse().ok().filter(|khz| *khz > 0)?,
        })
    };
    let found = fs::read_dir(policies).ok()?.filter_map(|policy| of(&policy.ok()?.path()));
    found.min_by_key(|each| {
        let allowed =
            if each.is_limited() { each.allowed_khz.saturating_mul(100) / each.highest_khz } else { 100 };
        (allowed, each.governor == "performance")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_that_is_held_back_most_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(frequency_in(&folder.path().join("none")), None);
        let policy = |name: &str, governor: &str, allowed: u64| {
            let policy = folder.path().join(name);
            fs::create_dir_all(&policy).unwrap();
            fs::write(policy.join("scaling_governor"), format!("{governor}\n")).unwrap();
            fs::write(policy.join("scaling_max_freq"), format!("{allowed}\n")).unwrap();
            fs::write(policy.join("cpuinfo_max_freq"), "3400000\n").unwrap();
        };
        let found = || frequency_in(folder.path()).unwrap();
        policy("policy0", "performance", 3_399_000);
        assert!(found().governor == "performance" && !found().is_limited());
        policy("policy1", "schedutil", 3_400_000);
        assert!(found().governor == "schedutil" && !found().is_limited());
        policy("policy2", "performance", 1_600_000);
        assert!(found().allowed_khz == 1_600_000 && found().is_limited());
    }
}
