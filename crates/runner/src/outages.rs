//! For how long nobody was served, as far as looks at the last acknowledgement show it.

use std::time::Duration;

/// Two looks are near each other if less time than this has passed.
const NEAR: Duration = Duration::from_millis(40);

/// How long before the end of the measured part the last acknowledgement is, at least, if nobody was served to the end.
const TO_THE_END: Duration = Duration::from_millis(100);

/// A time of the measured part in which nobody was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The last acknowledgement before it.
    pub from: Duration,
    /// The first one after it; none if there was none within the measured part.
    pub until: Option<Duration>,
}

impl Outage {
    /// Its length, given when the measured part ends.
    fn length(&self, end: Duration) -> Duration {
        self.until.unwrap_or(end).saturating_sub(self.from)
    }
}

/// What an outage may have come of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The injection with this index.
    Injection(usize),
    /// Connections that clients lost for no injection's sake: the loss with this number.
    Loss(usize),
}

#[derive(Debug)]
struct Since {
    event: Event,
    at: Duration,
    longest: Option<Outage>,
}

/// The longest outage since each event, up to the next one. One that an injection falls into is also that of what was before it;
/// one that a loss falls into is not: connections are lost a moment after the last acknowledgement.
#[derive(Debug)]
pub(crate) struct Outages {
    /// When the measured part ends; none as long as that is not known.
    end: Option<Duration>,
    /// When the acknowledgements were last looked at, and the last of them then.
    looked: Option<(Duration, Duration)>,
    /// In the order of their moments.
    events: Vec<Since>,
    losses: usize,
}

impl Outages {
    pub(crate) fn new(end: Option<Duration>) -> Self {
        Self { end, looked: None, events: Vec::new(), losses: 0 }
    }

    /// Whether a moment is within the measured part.
    pub(crate) fn is_measured(&self, moment: Duration) -> bool {
        self.end.is_none_or(|end| moment <= end)
    }

    pub(crate) fn begin(&mut self, event: Event, at: Duration) {
        let at = self.events.last().map_or(at, |last| last.at.max(at));
        self.events.push(Since { event, at, longest: None });
    }

    /// Begins a loss of connections.
    pub(crate) fn begin_loss(&mut self, at: Duration) -> Event {
        let loss = Event::Loss(self.losses);
        self.losses += 1;
        self.begin(loss, at);
        loss
    }

    /// Forgets an event that has turned out to be none.
    pub(crate) fn forget(&mut self, event: Event) {
        let Some(place) = self.events.iter().position(|since| since.event == event) else { return };
        if let Some(outage) = self.events.remove(place).longest {
            self.note(outage);
        }
    }

    /// The longest outage since the event, up to the next one.
    pub(crate) fn since(&self, event: Event) -> Option<Outage> {
        self.events.iter().find(|since| since.event == event)?.longest
    }

    /// Notes the last acknowledgement of all at this moment.
    pub(crate) fn look(&mut self, now: Duration, last: Duration) {
        if !self.is_measured(last) {
            return;
        }
        let now = self.end.map_or(now, |end| now.min(end));
        let Some((then, seen)) = self.looked.replace((now, last)) else { return };
        // of what was between two looks that are far apart nothing is known
        let served_again = if now.saturating_sub(then) < NEAR { last } else { then };
        let until = if last > seen { served_again.max(seen) } else { now };
        self.note(Outage { from: seen, until: Some(until) });
    }

    /// Notes that the measured part has ended, and what was then the last acknowledgement of all. One behind the end says
    /// nothing of what was before it.
    pub(crate) fn end(&mut self, end: Duration, last: Option<Duration>) {
        self.end = Some(end);
        for since in &mut self.events {
            let within =
                |outage: Outage| Outage { until: outage.until.map(|until| until.min(end)), ..outage };
            since.longest = since.longest.filter(|outage| outage.from < end).map(within);
        }
        let (Some((then, seen)), Some(last)) = (self.looked, last) else { return };
        let last = match last <= end {
            true => last,
            false if end.saturating_sub(then) < NEAR => seen,
            false => return,
        };
        if last + TO_THE_END < end {
            self.note(Outage { from: last, until: None });
        }
    }

    fn note(&mut self, outage: Outage) {
        let end = outage.until.or(self.end).unwrap_or(outage.from);
        let falls_into = |since: &Since| since.at > outage.from && since.at <= end;
        let is_loss = |since: &Since| falls_into(since) && matches!(since.event, Event::Loss(_));
        let before = self.events.iter().rposition(|since| since.at <= outage.from);
        let before = before.filter(|_| !self.events.iter().any(is_loss));
        for (place, since) in self.events.iter_mut().enumerate() {
            let is_longest = since.longest.is_none_or(|longest| outage.length(end) >= longest.length(end));
            if (falls_into(since) || before == Some(place)) && is_longest {
                since.longest = Some(outage);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILL: Event = Event::Injection(0);
    const NEXT: Event = Event::Injection(1);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn outage(from: u64, until: Option<u64>) -> Outage {
        Outage { from: ms(from), until: until.map(ms) }
    }

    /// Looks every 20 ms, up to a moment; nobody is served at these times, and somebody each millisecond otherwise.
    fn looked_at(
        outages: &mut Outages,
        (from, to): (u64, u64),
        away: &[(u64, u64)],
        events: &[(Event, u64)],
    ) {
        for now in (from..to).step_by(20) {
            let last = (0..=now).rev().find(|at| away.iter().all(|(from, until)| at <= from || at >= until));
            outages.look(ms(now), ms(last.unwrap_or_default()));
            for (event, at) in events.iter().filter(|(_, at)| (now..now + 20).contains(at)) {
                outages.begin(*event, ms(*at));
            }
        }
    }

    #[test]
    fn the_longest_outage_since_an_event_is_found() {
        let mut outages = Outages::new(Some(ms(10_000)));
        let away = [(1_000, 3_000), (4_001, 4_507), (6_000, 6_100)];
        looked_at(&mut outages, (0, 10_000), &away, &[(KILL, 4_003), (NEXT, 8_000)]);
        outages.end(ms(10_000), Some(ms(9_999)));
        // it is seen up to 20 ms too late that somebody is served again
        assert_eq!(outages.since(KILL), Some(outage(4_001, Some(4_520))));
        let next = outages.since(NEXT).unwrap();
        assert!(next.length(ms(10_000)) < ms(30), "{next:?}");
    }

    /// An acknowledgement after the end of the measured part says nothing of it, however long clients go on.
    #[test]
    fn nothing_is_looked_for_behind_the_end() {
        let mut outages = Outages::new(Some(ms(5_000)));
        let away = [(3_000, 3_250), (5_010, 5_800)];
        looked_at(&mut outages, (0, 6_000), &away, &[(KILL, 3_001)]);
        outages.end(ms(5_000), Some(ms(5_990)));
        assert_eq!(outages.since(KILL), Some(outage(3_000, Some(3_260))));

        let mut outages = Outages::new(Some(ms(5_000)));
        looked_at(&mut outages, (0, 6_000), &[(4_000, 5_500)], &[(KILL, 4_001)]);
        outages.end(ms(5_000), Some(ms(5_990)));
        assert_eq!(outages.since(KILL), Some(outage(4_000, None)));

        // the trial ended before its time
        let mut outages = Outages::new(Some(ms(5_000)));
        looked_at(&mut outages, (0, 4_600), &[(4_000, 5_500)], &[(KILL, 4_001)]);
        outages.end(ms(4_500), Some(ms(4_000)));
        assert_eq!(outages.since(KILL), Some(outage(4_000, None)));
    }

    /// Nobody knows whether somebody was served between the last look and the end.
    #[test]
    fn an_end_that_nobody_looked_at_is_no_outage() {
        let mut outages = Outages::new(Some(ms(5_000)));
        looked_at(&mut outages, (0, 4_500), &[], &[(KILL, 4_001)]);
        outages.look(ms(5_700), ms(5_699));
        outages.end(ms(5_000), Some(ms(5_699)));
        let longest = outages.since(KILL).unwrap();
        assert!(longest.until.is_some() && longest.length(ms(5_000)) < ms(30), "{longest:?}");
        // but if nobody has been since, it is known
        let mut outages = Outages::new(Some(ms(5_000)));
        looked_at(&mut outages, (0, 4_860), &[], &[(KILL, 4_850)]);
        outages.look(ms(5_050), ms(4_852));
        outages.end(ms(5_000), Some(ms(5_200)));
        assert_eq!(outages.since(KILL), Some(outage(4_852, None)));
    }

    #[test]
    fn an_outage_that_another_event_falls_into_is_that_of_both() {
        let mut outages = Outages::new(Some(ms(5_000)));
        let next = (NEXT, 3_120);
        looked_at(&mut outages, (0, 5_000), &[(2_999, 3_700)], &[(KILL, 3_001), next]);
        outages.end(ms(5_000), Some(ms(4_999)));
        let whole = Some(outage(2_999, Some(3_700)));
        assert_eq!((outages.since(KILL), outages.since(NEXT)), (whole, whole));
    }

    #[test]
    fn an_outage_is_that_of_lost_connections_unless_they_are_forgotten() {
        for is_restart in [true, false] {
            let mut outages = Outages::new(None);
            looked_at(&mut outages, (0, 2_000), &[(1_000, 1_100)], &[(KILL, 1_001)]);
            // clients notice it a moment after the last acknowledgement
            let loss = outages.begin_loss(ms(2_000));
            looked_at(&mut outages, (2_000, 3_000), &[(1_990, 2_500)], &[]);
            if !is_restart {
                outages.forget(loss);
            }
            outages.end(ms(2_999), Some(ms(2_999)));
            let (first, second) = (outage(1_000, Some(1_100)), outage(1_990, Some(2_500)));
            let told = if is_restart { (first, Some(second)) } else { (second, None) };
            assert_eq!((outages.since(KILL), outages.since(loss)), (Some(told.0), told.1));
        }
    }
}
