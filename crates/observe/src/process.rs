//! The CPU time, memory and storage of a group of processes: the client alone, or the server with all its
//! descendants.
//!
//! A process may end between two readings. The kernel then adds its use to its parent's counters for children that
//! were waited for. Each member therefore counts those counters less what was already seen of its ended children:
//! the last part of a process that was not seen, and whole processes too short-lived to be seen, are counted, and
//! nothing is counted twice.

use std::{collections::HashMap, fs, path::Path, time::Duration};

use procfs::{
    FromRead, ProcError,
    process::{Io, SmapsRollup, Stat},
};

use crate::{
    load::{Peak, rate},
    resources::{MemoryKind, ProcessUse},
};

/// A growing counter of one process, which may include the use of its ended children.
#[derive(Clone, Copy, Default)]
struct Counter {
    /// The reading at which this span began.
    base: u64,
    last: u64,
    /// The part of ended children's use that was already counted as theirs.
    counted_elsewhere: u64,
    counted: u64,
}

impl Counter {
    fn starting_at(base: u64) -> Self {
        Self { base, last: base, ..Self::default() }
    }

    /// Counts what is new since the span began. Never counts down: a child may be known to have ended before its
    /// parent's counter is read again.
    fn count(&mut self) {
        let new = self.last.saturating_sub(self.base).saturating_sub(self.counted_elsewhere);
        self.counted = self.counted.max(new);
    }

    /// The amount that the parent inherits: the last reading, or more if children ended since it.
    fn left(&self) -> u64 {
        self.last.max(self.base + self.counted + self.counted_elsewhere)
    }
}

/// CPU in ticks; storage in bytes.
#[derive(Clone, Copy, Default)]
struct Usage {
    cpu: u64,
    read: u64,
    written: u64,
}

impl Usage {
    fn add(&mut self, other: Self) {
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.read = self.read.saturating_add(other.read);
        self.written = self.written.saturating_add(other.written);
    }
}

/// A process that ended: its parent, and its last counters as the parent inherits them.
pub(crate) struct EndedProcess {
    pid: i32,
    parent: i32,
    left: Usage,
}

/// One living process.
struct Member {
    pid: i32,
    parent: i32,
    /// Ticks after boot at which it started; with the pid, the identity of a process.
    birth: u64,
    zombie: bool,
    resident_bytes: u64,
    own_cpu: Counter,
    waited_cpu: Counter,
    /// Bytes read and written; `None` until they have been read once.
    storage: Option<(Counter, Counter)>,
    /// Whether it was born within the span, so that all its use belongs to the span.
    newborn: bool,
}

impl Member {
    fn new(stat: &Stat, span_start: u64) -> Self {
        let newborn = stat.starttime >= span_start;
        let from = |now| Counter::starting_at(if newborn { 0 } else { now });
        let mut member = Self {
            pid: stat.pid,
            parent: stat.ppid,
            birth: stat.starttime,
            zombie: false,
            resident_bytes: 0,
            own_cpu: from(own_ticks(stat)),
            waited_cpu: from(waited_ticks(stat)),
            storage: None,
            newborn,
        };
        member.see(stat);
        member
    }

    /// Takes over a new reading; returns the ticks of CPU since the one before.
    fn see(&mut self, stat: &Stat) -> u64 {
        let before = self.own_cpu.last;
        self.parent = stat.ppid;
        self.zombie = matches!(stat.state, 'Z' | 'X' | 'x');
        self.resident_bytes = stat.rss.saturating_mul(procfs::page_size());
        self.own_cpu.last = own_ticks(stat);
        self.waited_cpu.last = waited_ticks(stat);
        self.own_cpu.last.saturating_sub(before)
    }

    fn see_storage(&mut self, io: &Io) {
        let newborn = self.newborn;
        let from = |now| Counter::starting_at(if newborn { 0 } else { now });
        let (read, written) = self.storage.get_or_insert_with(|| (from(io.read_bytes), from(io.write_bytes)));
        read.last = io.read_bytes;
        written.last = io.write_bytes;
    }

    fn inherit(&mut self, left: Usage) {
        self.waited_cpu.counted_elsewhere += left.cpu;
        if let Some((read, written)) = &mut self.storage {
            read.counted_elsewhere += left.read;
            written.counted_elsewhere += left.written;
        }
    }

    fn count(&mut self) {
        self.own_cpu.count();
        self.waited_cpu.count();
        if let Some((read, written)) = &mut self.storage {
            read.count();
            written.count();
        }
    }

    /// The part of its use that belongs to the span.
    fn spent(&self) -> Usage {
        self.sum(|counter| counter.counted)
    }

    /// All its use since it was born, which its parent inherits.
    fn left(&self) -> Usage {
        self.sum(Counter::left)
    }

    fn sum(&self, figure: impl Fn(&Counter) -> u64) -> Usage {
        let (read, written) = self.storage.unwrap_or_default();
        Usage {
            cpu: figure(&self.own_cpu) + figure(&self.waited_cpu),
            read: figure(&read),
            written: figure(&written),
        }
    }
}

pub(crate) struct Group {
    /// Parents before their children: a child that ends while the group is read is then never both in its parent's
    /// counters and taken for alive.
    members: Vec<Member>,
    /// Whether CPU time that ended children left to a member belongs to the group.
    inherits: bool,
    /// When the observed span began, in ticks after boot.
    span_start: u64,
    /// The use of members that ended.
    ended: Usage,
    most: usize,
    peak: Peak,
    memory: Memory,
    storage_refused: bool,
}

impl Group {
    /// A group of the process `root`, empty if there is no such process. Its descendants join it by
    /// [`Self::adopt`]; such a group should also inherit the use of descendants that it never saw.
    pub(crate) fn new(root: i32, inherits: bool, span_start: u64, every: Duration) -> Self {
        let root = stat(root).ok().map(|stat| Member::new(&stat, span_start));
        Self {
            members: root.into_iter().collect(),
            inherits,
            span_start,
            ended: Usage::default(),
            most: 0,
            peak: Peak::new(every),
            memory: Memory::default(),
            storage_refused: false,
        }
    }

    /// Adds a process that takes the place of one that has ended.
    pub(crate) fn join(&mut self, pid: i32) {
        if let Ok(stat) = stat(pid)
            && !self.members.iter().any(|member| member.pid == pid && member.birth == stat.starttime)
        {
            self.members.push(Member::new(&stat, self.span_start));
        }
    }

    /// Reads the CPU counters of the known members, whose last reading is `seconds` old; returns the members that
    /// ended.
    pub(crate) fn look(&mut self, seconds: f64) -> Vec<EndedProcess> {
        let mut ticks = 0;
        let mut ended = Vec::new();
        let mut spent = Usage::default();
        self.members.retain_mut(|member| match stat(member.pid) {
            Ok(stat) if stat.starttime == member.birth => {
                ticks += member.see(&stat);
                true
            }
            // unreadable for another reason, such as no free file descriptor: try again at the next reading
            Err(_) if Path::new(&format!("/proc/{}", member.pid)).exists() => true,
            _ => {
                spent.add(member.spent());
                ended.push(EndedProcess { pid: member.pid, parent: member.parent, left: member.left() });
                false
            }
        });
        self.ended.add(spent);
        self.peak.add(seconds_of(ticks), seconds);
        leave_to_parents(&mut ended);
        ended
    }

    /// Reads the storage counters. To be called before [`Self::look`], never after it: a child that ends in between
    /// must be known to have ended before its parent's counters are counted.
    pub(crate) fn look_at_storage(&mut self) {
        for member in &mut self.members {
            match read::<Io>(member.pid, "io") {
                Reading::Got(io) => member.see_storage(&io),
                Reading::Refused => self.storage_refused = true,
                Reading::Gone => {}
            }
        }
    }

    /// Adds up the members' memory, which takes long for a large server.
    pub(crate) fn look_at_memory(&mut self) {
        self.memory.read(&self.members);
    }

    /// Adds the latest readings to the totals, after the members have inherited from those that ended.
    pub(crate) fn count(&mut self, ended: &[EndedProcess]) {
        for member in &mut self.members {
            let pid = member.pid;
            for child in ended.iter().filter(|child| child.parent == pid) {
                member.inherit(child.left);
            }
            member.count();
        }
        self.most = self.most.max(self.members.iter().filter(|member| !member.zombie).count());
    }

    /// Adds those of the `strangers` (by parent) that descend from a member.
    pub(crate) fn adopt(&mut self, mut strangers: HashMap<i32, Vec<Stat>>) {
        let mut next = 0;
        while let Some(member) = self.members.get(next) {
            let known = |pid| self.members.iter().any(|other| other.pid == pid);
            let children = strangers.remove(&member.pid).unwrap_or_default();
            let new: Vec<_> = children
                .iter()
                .filter(|stat| !known(stat.pid))
                .map(|stat| Member::new(stat, self.span_start))
                .collect();
            self.members.extend(new);
            next += 1;
        }
    }

    /// The memory that was last read, in bytes.
    pub(crate) fn memory_now(&self) -> u64 {
        self.memory.last_bytes
    }

    /// The group's use over `seconds`; `None` if it never had a member.
    pub(crate) fn result(&self, seconds: f64) -> Option<ProcessUse> {
        let mut spent = self.ended;
        for member in &self.members {
            spent.add(member.spent());
            if !self.inherits {
                spent.cpu -= member.waited_cpu.counted;
            }
        }
        let cpu_seconds = seconds_of(spent.cpu);
        let cpu_mean = rate(cpu_seconds, seconds);
        let bytes = |bytes| (!self.storage_refused).then_some(bytes);
        (self.most > 0).then(|| ProcessUse {
            processes: self.most as u64,
            cpu_seconds,
            cpu_mean,
            cpu_max: self.peak.max(cpu_mean),
            memory_mean_bytes: self.memory.sum_bytes.checked_div(self.memory.readings).unwrap_or(0),
            memory_max_bytes: self.memory.max_bytes,
            memory_kind: self.memory.kind(),
            read_bytes: bytes(spent.read),
            written_bytes: bytes(spent.written),
        })
    }
}

/// Passes the use of ended processes on to their parents, where both ended between the same two readings (parents
/// come first in `ended`). A child is taken to have been waited for by its parent, as most are: its use then counts
/// as the parent's.
fn leave_to_parents(ended: &mut [EndedProcess]) {
    for child in (1..ended.len()).rev() {
        let (before, rest) = ended.split_at_mut(child);
        let parent = rest.first().and_then(|child| before.iter_mut().find(|one| one.pid == child.parent));
        if let (Some(parent), Some(child)) = (parent, rest.first()) {
            parent.left.add(child.left);
        }
    }
}

#[derive(Default)]
struct Memory {
    readings: u64,
    sum_bytes: u64,
    max_bytes: u64,
    last_bytes: u64,
    refused: bool,
}

impl Memory {
    fn read(&mut self, members: &[Member]) {
        let bytes: u64 = members.iter().map(|member| self.of(member)).sum();
        self.last_bytes = bytes;
        // a group that has ended has no memory left, and must not lower the mean over its life
        if members.iter().any(|member| !member.zombie) {
            self.readings += 1;
            self.sum_bytes = self.sum_bytes.saturating_add(bytes);
            self.max_bytes = self.max_bytes.max(bytes);
        }
    }

    fn of(&mut self, member: &Member) -> u64 {
        match read::<SmapsRollup>(member.pid, "smaps_rollup") {
            Reading::Got(SmapsRollup { memory_map_rollup }) => {
                memory_map_rollup.iter().filter_map(|map| map.extension.map.get("Pss")).sum()
            }
            Reading::Refused => {
                self.refused = true;
                member.resident_bytes
            }
            Reading::Gone => 0,
        }
    }

    fn kind(&self) -> MemoryKind {
        if self.refused { MemoryKind::Resident } else { MemoryKind::Proportional }
    }
}

/// Every process of the machine but `except`, by its parent. Empty where `/proc` cannot be listed.
pub(crate) fn by_parent(except: i32) -> HashMap<i32, Vec<Stat>> {
    let mut by_parent: HashMap<i32, Vec<Stat>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for stat in pids.filter(|pid| *pid != except).filter_map(|pid| stat(pid).ok()) {
        by_parent.entry(stat.ppid).or_default().push(stat);
    }
    by_parent
}

fn stat(pid: i32) -> Result<Stat, ProcError> {
    Stat::from_file(format!("/proc/{pid}/stat"))
}

/// The result of reading a file about a process that not every user may read.
enum Reading<T> {
    Got(T),
    /// Not permitted, or not known to this kernel.
    Refused,
    /// The process ended.
    Gone,
}

fn read<T: FromRead>(pid: i32, file: &str) -> Reading<T> {
    match T::from_file(format!("/proc/{pid}/{file}")) {
        Ok(got) => Reading::Got(got),
        Err(ProcError::PermissionDenied(_)) => Reading::Refused,
        Err(_) if !Path::new("/proc/self").join(file).exists() => Reading::Refused,
        Err(_) => Reading::Gone,
    }
}

fn own_ticks(stat: &Stat) -> u64 {
    stat.utime.saturating_add(stat.stime)
}

fn waited_ticks(stat: &Stat) -> u64 {
    u64::try_from(stat.cutime.saturating_add(stat.cstime)).unwrap_or(0)
}

fn seconds_of(ticks: u64) -> f64 {
    rate(ticks as f64, procfs::ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_counts_only_what_was_not_seen_of_its_child() {
        let mut parent = Counter::starting_at(100);
        // a child seen up to 30 ended at 35 and was waited for
        parent.counted_elsewhere = 30;
        parent.count();
        assert_eq!(parent.counted, 0, "not read again yet");
        parent.last = 135;
        parent.count();
        assert_eq!(parent.counted, 5);
    }

    #[test]
    fn what_a_child_left_is_passed_on_though_it_was_not_read_again() {
        let mut parent = Counter::starting_at(100);
        parent.last = 110;
        parent.count();
        parent.counted_elsewhere = 30;
        parent.count();
        assert_eq!((parent.counted, parent.left()), (10, 140));
        parent.last = 145;
        parent.count();
        assert_eq!((parent.counted, parent.left()), (15, 145));
    }

    #[test]
    fn a_family_that_ended_at_once_leaves_all_to_the_grandparent() {
        let ended =
            |pid, cpu| EndedProcess { pid, parent: pid - 1, left: Usage { cpu, read: 1, written: 2 } };
        let mut family = [ended(2, 10), ended(3, 20), ended(4, 30), ended(9, 40)];
        leave_to_parents(&mut family);
        assert_eq!(family.map(|one| (one.left.cpu, one.left.written)), [(60, 6), (50, 4), (30, 2), (40, 2)]);
    }

    #[test]
    fn only_a_group_that_inherits_counts_unseen_children() {
        let own = i32::try_from(std::process::id()).unwrap();
        let group = |inherits| Group::new(own, inherits, u64::MAX, Duration::from_secs(1));
        let (mut alone, mut tree) = (group(false), group(true));
        // enough for a tenth of a second on the fastest machine
        let burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let burn = format!("for turn in 1 2 3 4; do {burn}; done");
        assert!(std::process::Command::new("sh").args(["-c", &burn]).status().unwrap().success());
        let cpu = |group: &mut Group| {
            let ended = group.look(1.0);
            group.count(&ended);
            group.result(1.0).unwrap().cpu_seconds
        };
        let (alone, tree) = (cpu(&mut alone), cpu(&mut tree));
        assert!(tree >= alone + 0.1, "{tree} and {alone}");
    }
}
