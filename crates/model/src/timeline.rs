//! Faults that a run brings about: what is asked for, and the timeline that follows from it.

use std::{fmt, str::FromStr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Role, Selector};

/// What is done to a member of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// The whole process tree of the member is killed (SIGKILL) and, after it has been down for this long, started
    /// again on the same data and settings.
    Kill {
        /// The time between the kill and the start.
        down: Duration,
    },
    /// The member is asked to stop, by its own orderly way, and started again.
    Restart,
    /// All processes of the member are stopped (SIGSTOP) and go on (SIGCONT) after this long.
    Pause {
        /// The time between the two signals.
        lasting: Duration,
    },
    /// The whole process tree of the member is killed (SIGKILL), and it never comes back: if it led the others, one of them is
    /// promoted.
    Lose,
    /// Nothing passes any more between the member and the other members, for this long. Clients still reach it; if it led the
    /// others, one of them is promoted.
    Cut {
        /// How long the members are cut off from each other.
        lasting: Duration,
    },
    /// All connections of clients are closed in the middle of what they do.
    Disconnect,
    /// One of the processes that drive the clients is stopped (SIGSTOP) and goes on (SIGCONT) after this long.
    Stall {
        /// The time between the two signals.
        lasting: Duration,
    },
}

impl Disruption {
    /// The word for it in a plan: `kill`, `restart`, `pause`, `lose`, `cut`, `disconnect` or `stall`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kill { .. } => "kill",
            Self::Restart => "restart",
            Self::Pause { .. } => "pause",
            Self::Lose => "lose",
            Self::Cut { .. } => "cut",
            Self::Disconnect => "disconnect",
            Self::Stall { .. } => "stall",
        }
    }

    /// Whether it is done to the clients and not to a server.
    #[must_use]
    pub fn hits_clients(&self) -> bool {
        matches!(self, Self::Disconnect | Self::Stall { .. })
    }

    /// Whether the member's processes end, so that what only they knew is gone.
    #[must_use]
    pub fn ends_processes(&self) -> bool {
        Self::is_end(self.name())
    }

    /// The same of a disruption of this [name](Self::name).
    #[must_use]
    pub fn is_end(name: &str) -> bool {
        ["kill", "restart", "lose"].contains(&name)
    }

    /// Whether what the member answered before proves nothing of what it answers afterwards: it may have forgotten what it did not
    /// keep, or another may answer in its place.
    #[must_use]
    pub fn begins_epoch(&self) -> bool {
        self.ends_processes() || self.is_of_cluster()
    }

    /// Whether it is one that only a deployment of several servers survives: another takes over.
    #[must_use]
    pub fn is_of_cluster(&self) -> bool {
        matches!(self, Self::Lose | Self::Cut { .. })
    }

    /// How long it keeps the member away, besides the member's own start; `None` where that is the member's affair.
    fn length(&self) -> Option<Duration> {
        match self {
            Self::Kill { down } => Some(*down).filter(|down| !down.is_zero()),
            Self::Restart | Self::Lose | Self::Disconnect => None,
            Self::Pause { lasting } | Self::Cut { lasting } | Self::Stall { lasting } => Some(*lasting),
        }
    }
}

/// When a fault comes, from the beginning of the measured part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Once, this long after that beginning.
    At(Duration),
    /// This many times, at moments that are drawn from the run's seed.
    Drawn(u32),
}

/// A fault that is asked for, such as `kill@3s`, `kill:locks*5` or `pause@4s:2s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is done, and for how long.
    pub disruption: Disruption,
    /// To which members.
    pub target: Selector,
    /// When, and how many times.
    pub moment: Moment,
}

impl Fault {
    /// Whether another server may take over after it: it is done to one that may lead.
    #[must_use]
    pub fn may_promote(&self) -> bool {
        self.disruption.is_of_cluster() && !matches!(self.target, Selector::Replica(_))
    }
}

/// The faults of a cell's trials, such as `kill@3s+pause@5s:2s`; `none` if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Faults(pub Vec<Fault>);

/// Most faults of a trial.
const MOST: u32 = 1000;

/// What a fault may look like.
const FORMS: &str = "write kill@3s, kill@3s:500ms (down for so long), kill*5 (five times), kill:locks@3s (the lock \
                     service), kill:gateway@3s and kill:sink@3s (of logs), restart@5s or pause@4s:2s, of clusters \
                     lose:leader@3s, cut:leader@3s:4s and kill:replica-1@3s, or of the clients \
                     disconnect@3s or stall@3s:2s, several together as kill@3s+pause@6s:1s, or none";

impl Faults {
    /// Whether there are none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of them stops a process of clients.
    #[must_use]
    pub fn stall(&self) -> bool {
        self.0.iter().any(|fault| matches!(fault.disruption, Disruption::Stall { .. }))
    }

    /// Whether any of them is done to a server.
    #[must_use]
    pub fn hit_servers(&self) -> bool {
        self.0.iter().any(|fault| !fault.disruption.hits_clients())
    }

    /// Whether any of them needs a deployment of several servers: by what is done, or by whom it is done to.
    #[must_use]
    pub fn need_several(&self) -> bool {
        let needs =
            |fault: &Fault| fault.disruption.is_of_cluster() || fault.target != fault.target.role().into();
        self.0.iter().any(needs)
    }

    /// Whether any of them cuts members off from each other.
    #[must_use]
    pub fn cut(&self) -> bool {
        self.0.iter().any(|fault| matches!(fault.disruption, Disruption::Cut { .. }))
    }

    /// Whether any of them may have another server take over.
    #[must_use]
    pub fn promote(&self) -> bool {
        self.0.iter().any(Fault::may_promote)
    }

    /// Whether any of them is done to members with this role.
    #[must_use]
    pub fn hit(&self, role: Role) -> bool {
        self.0.iter().any(|fault| fault.target.role() == role)
    }

    /// The latest moment that is asked for.
    #[must_use]
    pub fn last(&self) -> Option<Duration> {
        let moment = |fault: &Fault| match fault.moment {
            Moment::At(moment) => Some(moment),
            Moment::Drawn(_) => None,
        };
        self.0.iter().filter_map(moment).max()
    }

    /// When the last of them is over, at the earliest, counted from the beginning of the measured part.
    #[must_use]
    pub fn over(&self) -> Duration {
        let over = |fault: &Fault| {
            let moment = if let Moment::At(moment) = fault.moment { moment } else { Duration::ZERO };
            moment.saturating_add(fault.disruption.length().unwrap_or_default())
        };
        self.0.iter().map(over).max().unwrap_or_default()
    }

    /// The longest time for which a member is kept away.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.0.iter().filter_map(|fault| fault.disruption.length()).max().unwrap_or_default()
    }

    /// The timeline of a trial whose measured part lasts so long. `draw` gives numbers from 0 to 1; drawn moments are
    /// between a twentieth and nine tenths of the measured part, so that there is something before and after each.
    #[must_use]
    pub fn timeline(&self, length: Duration, mut draw: impl FnMut() -> f64) -> Timeline {
        let mut injections = Vec::new();
        for &Fault { disruption, target, moment } in &self.0 {
            match moment {
                Moment::At(at) => injections.push(Injection { at, target, disruption }),
                Moment::Drawn(times) => injections.extend((0..times).map(|_| {
                    let at = length.mul_f64(0.05 + 0.85 * draw().clamp(0.0, 1.0));
                    Injection { at, target, disruption }
                })),
            }
        }
        Timeline::new(injections)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        for (index, fault) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("+")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.disruption.name())?;
        if self.target != Role::Server.into() && self.target != Role::Clients.into() {
            write!(f, ":{}", self.target)?;
        }
        match self.moment {
            Moment::At(at) => write!(f, "@{}", length(at))?,
            Moment::Drawn(times) => write!(f, "*{times}")?,
        }
        self.disruption.length().map_or(Ok(()), |lasting| write!(f, ":{}", length(lasting)))
    }
}

/// A length of time as it is asked for: in milliseconds, or in seconds where these are whole.
fn length(time: Duration) -> String {
    match time.subsec_nanos() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    }
}

written!(Faults);

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::default());
        }
        let faults = text.split('+').map(fault).collect::<Result<Vec<_>, _>>();
        let faults = faults.and_then(|faults| twice(&faults).map_or(Ok(faults), Err));
        faults.map(Self).map_err(|why| format!("\"{text}\" is not a fault: {why}\n  {FORMS}"))
    }
}

/// Why not all of the faults can be: two of them hit one member at the same moment.
fn twice(faults: &[Fault]) -> Option<String> {
    let at = |fault: &Fault| match fault.moment {
        Moment::At(at) if fault.target != Role::Clients.into() => Some((fault.target, at)),
        _ => None,
    };
    let hits_again = |(index, fault): &(usize, &Fault)| {
        at(fault).is_some_and(|this| faults[..*index].iter().any(|earlier| at(earlier) == Some(this)))
    };
    let (_, again) = faults.iter().enumerate().find(hits_again)?;
    Some(format!("at the time of {again}, another fault strikes the same member"))
}

fn fault(text: &str) -> Result<Fault, String> {
    let at = text.find(['@', '*']).ok_or("it has no time")?;
    let (what, moment) = text.split_at(at);
    let (word, target) = what.split_once(':').map_or((what, None), |(word, target)| (word, Some(target)));
    let (moment, lasting) =
        moment.split_once(':').map_or((moment, None), |(moment, rest)| (moment, Some(rest)));
    let moment = match moment.split_at(1) {
        ("@", at) => Moment::At(span(at)?),
        (_, times) => Moment::Drawn(
            times
                .parse()
                .ok()
                .filter(|times| (1..=MOST).contains(times))
                .ok_or_else(|| format!("{times} is not a number of times: give one from 1 to {MOST}"))?,
        ),
    };
    let lasting = lasting.map(span).transpose()?;
    let disruption = match (word, lasting) {
        ("kill", down) => Disruption::Kill { down: down.unwrap_or_default() },
        ("restart", None) => Disruption::Restart,
        ("restart", Some(_)) => return Err("a restart takes as long as the server takes".to_owned()),
        ("pause", Some(lasting)) if !lasting.is_zero() => Disruption::Pause { lasting },
        ("pause", _) => return Err("a pause has an end: say how long it lasts".to_owned()),
        ("lose", None) => Disruption::Lose,
        ("lose", Some(_)) => return Err("a member that is lost never comes back".to_owned()),
        ("cut", Some(lasting)) if !lasting.is_zero() => Disruption::Cut { lasting },
        ("cut", _) => return Err("a cut has an end: say how long it lasts".to_owned()),
        ("disconnect", None) => Disruption::Disconnect,
        ("disconnect", Some(_)) => {
            return Err("clients that are disconnected connect again at once".to_owned());
        }
        ("stall", Some(lasting)) if !lasting.is_zero() => Disruption::Stall { lasting },
        ("stall", _) => return Err("a stall has an end: say how long it lasts".to_owned()),
        (word, _) => {
            let known = ["kill", "restart", "pause", "lose", "cut", "disconnect", "stall"];
            return Err(format!("no fault is called \"{word}\"{}", crate::hint(word, known.into_iter())));
        }
    };
    let target = match target {
        Some(target) if disruption.hits_clients() => {
            return Err(format!("{word} strikes clients, not \"{target}\""));
        }
        None if disruption.hits_clients() => Role::Clients.into(),
        None if disruption.is_of_cluster() => Selector::Leader,
        None => Role::Server.into(),
        Some(target) => target.parse()?,
    };
    Ok(Fault { disruption, target, moment })
}

/// A length of time such as `3s`, `1.5s` or `500ms`.
fn span(text: &str) -> Result<Duration, String> {
    let parsed = text
        .strip_suffix("ms")
        .map(|number| (number, 1e-3))
        .or_else(|| text.strip_suffix('s').map(|number| (number, 1.0)))
        .or_else(|| text.strip_suffix('m').map(|number| (number, 60.0)));
    let seconds = parsed.and_then(|(number, unit)| Some(number.parse::<f64>().ok()? * unit));
    // whole milliseconds, so that what is shown is what was asked for
    let rounded = seconds.map(|seconds| (seconds * 1e3).round() / 1e3);
    rounded
        .filter(|seconds| (0.0..=86_400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("\"{text}\" is not a length of time: write 3s, 1.5s or 500ms"))
}

/// An entry of a timeline: what is done, to which member, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    /// The moment, from the beginning of the measured part.
    pub at: Duration,
    /// The members that it is done to.
    pub target: Selector,
    /// What is done, and for how long.
    pub disruption: Disruption,
}

/// What is done to a deployment while a trial runs, in the order of the moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    injections: Vec<Injection>,
}

impl Timeline {
    /// The timeline with these entries, in whatever order they are given.
    #[must_use]
    pub fn new(mut injections: Vec<Injection>) -> Self {
        injections.sort_by_key(|injection| injection.at);
        Self { injections }
    }

    /// The entries, in the order of their moments.
    #[must_use]
    pub fn injections(&self) -> &[Injection] {
        &self.injections
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        for text in [
            "none",
            "kill@3s",
            "kill@1500ms:500ms",
            "kill:locks@3s",
            "kill*5",
            "kill:locks*2:1s",
            "kill:server-2@3s",
            "kill:leader@3s",
            "kill:replica-1@3s",
            "lose:leader@3s",
            "cut:leader@3s:4s",
            "cut:server-2*2:500ms",
            "pause:minority@3s:1s",
            "kill:all@3s",
            "restart@5s",
            "pause@4s:2s",
            "pause*3:250ms",
            "kill@3s+pause@6s:1s+restart@9s",
        ] {
            let faults: Faults = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(faults.to_string(), text);
        }
        let same = ["kill@1.5s", "kill@1500ms", "kill@1500ms:0s"].map(str::parse::<Faults>);
        assert!(same.windows(2).all(|pair| pair[0] == pair[1]), "{same:?}");
    }

    #[test]
    fn what_is_no_fault_is_refused_with_what_would_be() {
        for (text, why) in [
            ("kill", "no time"),
            ("kil@3s", "did you mean \"kill\""),
            ("kill@", "not a length of time"),
            ("kill@3", "not a length of time"),
            ("kill@-3s", "not a length of time"),
            ("kill@infs", "not a length of time"),
            ("kill@99999999s", "not a length of time"),
            ("kill*0", "from 1 to 1000"),
            ("kill*x", "from 1 to 1000"),
            ("kill:router@3s", "roles are server, locks, gateway, queue, collector, and sink"),
            ("pause@3s", "a pause has an end"),
            ("pause@3s:0s", "a pause has an end"),
            ("restart@3s:1s", "takes as long as the server takes"),
            ("lose:leader@3s:1s", "never comes back"),
            ("cut:leader@3s", "a cut has an end"),
            ("kill@3s+", "no time"),
            ("kill@2s+pause@2000ms:1s", "another fault strikes the same member"),
            ("", "no time"),
            ("*é", "from 1 to 1000"),
        ] {
            let said = text.parse::<Faults>().unwrap_err();
            assert!(said.contains(why) && said.contains("write kill@3s"), "{text}: {said}");
        }
    }

    #[test]
    fn drawn_moments_lie_well_within_the_measured_part() {
        let faults: Faults = "kill*3+restart@1s".parse().unwrap();
        let mut draws = [1.0, 0.0, 0.5].into_iter();
        let timeline = faults.timeline(Duration::from_secs(100), || draws.next().unwrap());
        let at: Vec<u64> = timeline.injections().iter().map(|injection| injection.at.as_secs()).collect();
        assert_eq!(at, [1, 5, 47, 90]);
    }
}
