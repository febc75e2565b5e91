//! A store in virtual time: what a search meets with, without the time and the noise of a real one.
//!
//! Operations arrive at random (Poisson) and wait in one queue for the first of several servers that is free. Each
//! takes a time that is distributed lognormally. What is known of it: its knee, the rate at which the 99th percentile
//! of the response time, queueing included, crosses the objective.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use acidtest_capacity::{Conclusion, Ended, Observation, Search, Step};

/// What differs from probe to probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Noise {
    /// Every probe meets with the same machine.
    None,
    /// All servers of a probe are faster or slower by a lognormal factor with a median of 1 and this coefficient of
    /// variation.
    Speed(f64),
    /// The same, and the factors of neighbouring probes depend on each other: their logs are an autoregression of the first order
    /// with this coefficient.
    Drift(f64, f64),
    /// The measured percentile is multiplied by a lognormal factor with a median of 1 and this coefficient of
    /// variation.
    Latency(f64),
}

/// A queue before servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Queue {
    /// Number of servers.
    pub(crate) servers: usize,
    /// Mean time that a server takes for an operation (seconds).
    pub(crate) service: f64,
    /// Standard deviation of the natural log of that time: 0.5 is a mild tail, 1 a heavy one.
    pub(crate) tail: f64,
    /// Highest 99th percentile of the response time that is allowed (seconds).
    pub(crate) objective: f64,
    /// How long a probe measures (seconds of virtual time).
    pub(crate) hold: f64,
}

/// Random numbers of one probe.
struct Draws {
    source: Xoshiro256PlusPlus,
    spare: Option<f64>,
}

impl Draws {
    fn new(seed: u64, probe: u64) -> Self {
        // by way of a generator: its own seeding would give neighbouring seeds much the same state
        let mixed = Xoshiro256PlusPlus::seed_from_u64(seed).random::<u64>()
            ^ probe.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        Self { source: Xoshiro256PlusPlus::seed_from_u64(mixed), spare: None }
    }

    /// Above 0 and up to 1.
    fn share(&mut self) -> f64 {
        1.0 - self.source.random::<f64>()
    }

    /// Standard normal (Box and Muller, 1958).
    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let length = (-2.0 * self.share().ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * self.share()).sin_cos();
        self.spare = Some(length * sine);
        length * cosine
    }

    /// Lognormal with a median of 1 and this coefficient of variation.
    fn factor(&mut self, variation: f64) -> f64 {
        (self.normal() * variation.powi(2).ln_1p().sqrt()).exp()
    }
}

/// Factor of the speed in the probe of that number, on a machine that drifts.
fn drifting(variation: f64, dependence: f64, seed: u64, probe: u64) -> f64 {
    let shock = |number: u64| Draws::new(seed ^ 0xD81F_7000, number).normal();
    let fresh = (1.0 - dependence * dependence).sqrt();
    let log = (1..=probe).fold(shock(0), |log, number| dependence * log + fresh * shock(number));
    (log * variation.powi(2).ln_1p().sqrt()).exp()
}

/// Seconds that a probe takes besides the time that it measures: its warm-up, the loading of its data, and its audit.
const BESIDES: f64 = 2.5;

/// A store without a queue, for many searches in little time: its percentile is a given function of the rate over what the store
/// holds at the moment, flat at first, as an M/M/1 queue's below the knee, and with an overload's backlog above.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Curve {
    /// Rate at which the percentile of the median machine reaches the objective (operations a second).
    pub(crate) knee: f64,
    /// What differs from probe to probe.
    pub(crate) noise: Noise,
}

impl Curve {
    /// Measured over allowed at a rate over what is held: 1 at 1.
    fn ratio(over: f64) -> f64 {
        if over < 1.0 { 0.05 / (1.0 - 0.95 * over) } else { 1.0 + 100.0 * (over - 1.0) }
    }

    /// What a machine would hold over the knee, with so many standard deviations of luck.
    fn held_at(&self, luck: f64) -> f64 {
        let deviation = |variation: f64| variation.powi(2).ln_1p().sqrt();
        match self.noise {
            Noise::None => 1.0,
            Noise::Speed(variation) | Noise::Drift(variation, _) => (luck * deviation(variation)).exp(),
            Noise::Latency(variation) => {
                // the rate whose ratio, times the mistake, is 1
                let mistake = (-luck * deviation(variation)).exp();
                if mistake < 1.0 {
                    1.0 + (1.0 / mistake - 1.0) / 100.0
                } else {
                    (1.0 - 0.05 * mistake) / 0.95
                }
            }
        }
    }

    /// The rate that this share of all probes hold.
    pub(crate) fn held_by(&self, share: f64) -> f64 {
        let (mut low, mut high) = (-6.0, 6.0);
        while high - low > 1e-6 {
            let middle = f64::midpoint(low, high);
            if normal(middle) < 1.0 - share { low = middle } else { high = middle }
        }
        self.knee * self.held_at(low)
    }

    /// The share of all probes that hold this rate.
    pub(crate) fn share_held(&self, rate: f64) -> f64 {
        let (mut low, mut high) = (-9.0, 9.0);
        while high - low > 1e-6 {
            let middle = f64::midpoint(low, high);
            if self.knee * self.held_at(middle) < rate { low = middle } else { high = middle }
        }
        1.0 - normal(low)
    }

    /// Takes a search through to its end, with probes of 5 s.
    pub(crate) fn drive(&self, search: &mut Search, seed: u64) -> Conclusion {
        loop {
            let rate = match search.next() {
                Step::Probe(rate) => rate,
                Step::Done(conclusion) => return *conclusion,
            };
            let probe = search.observations().len() as u64;
            let mut draws = Draws::new(seed, probe);
            let (faster, mistake) = match self.noise {
                Noise::None => (1.0, 1.0),
                Noise::Speed(variation) => (draws.factor(variation), 1.0),
                Noise::Drift(variation, dependence) => (drifting(variation, dependence, seed, probe), 1.0),
                Noise::Latency(variation) => (1.0, draws.factor(variation)),
            };
            let ratio = Self::ratio(rate / (self.knee * faster)) * mistake;
            let ended = if ratio <= 1.0 { Ended::Met } else { Ended::Missed { objective: 0, ratio } };
            let latency = Some(ratio * 0.02);
            search.told(Observation { rate, ended, margins: vec![ratio], latency, seconds: 5.0 + BESIDES });
        }
    }
}

/// The standard normal distribution (Abramowitz and Stegun, 26.2.17: to 7.5e-8).
fn normal(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let poly = t
        * (0.319_381_530
            + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let tail = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * poly;
    if z < 0.0 { tail } else { 1.0 - tail }
}

impl Queue {
    /// Operations a second at which all servers are always busy.
    pub(crate) fn saturation(&self) -> f64 {
        self.servers as f64 / self.service
    }

    /// The 99th percentile of the response time (seconds) at the rate (operations a second) in the probe of that
    /// number. The same seed and number give the same answer.
    pub(crate) fn percentile(&self, rate: f64, noise: Noise, seed: u64, probe: u64) -> f64 {
        let mut draws = Draws::new(seed, probe);
        let (faster, mistake) = match noise {
            Noise::None => (1.0, 1.0),
            Noise::Speed(variation) => (draws.factor(variation), 1.0),
            Noise::Drift(variation, dependence) => (drifting(variation, dependence, seed, probe), 1.0),
            Noise::Latency(variation) => (1.0, draws.factor(variation)),
        };
        let typical = self.service / faster * (-self.tail * self.tail / 2.0).exp();
        let mut free = vec![0.0_f64; self.servers];
        let mut responses = Vec::new();
        let mut now = 0.0;
        loop {
            now -= draws.share().ln() / rate;
            if now >= self.hold {
                break;
            }
            let mut earliest = 0;
            for server in 1..free.len() {
                if free[server] < free[earliest] {
                    earliest = server;
                }
            }
            let done = free[earliest].max(now) + typical * (self.tail * draws.normal()).exp();
            free[earliest] = done;
            responses.push(done - now);
        }
        if responses.is_empty() {
            return 0.0;
        }
        let place = (responses.len() - 1) * 99 / 100;
        *responses.select_nth_unstable_by(place, f64::total_cmp).1 * mistake
    }

    /// The knee of the machine without noise (operations a second): where the median of the percentile over as many
    /// holds as `repetitions` crosses the objective, to 0.1 %. Takes about 15 times as many probes.
    pub(crate) fn knee(&self, repetitions: u64) -> f64 {
        let meets = |rate: f64| {
            let met = (0..repetitions)
                .filter(|&n| self.percentile(rate, Noise::None, 0xACE0, n) <= self.objective)
                .count();
            2 * met as u64 >= repetitions
        };
        let (mut low, mut high) = (self.saturation() / 16.0, self.saturation() * 1.25);
        while high / low > 1.001 {
            let middle = (low * high).sqrt();
            if meets(middle) { low = middle } else { high = middle }
        }
        (low * high).sqrt()
    }
}

/// A store as a search sees it, with what can go wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Store {
    /// Its queue.
    pub(crate) queue: Queue,
    /// What differs from probe to probe.
    pub(crate) noise: Noise,
    /// Rate from which on the audit finds a broken promise (operations a second).
    pub(crate) breaks_from: Option<f64>,
    /// Rate from which on the audit cannot tell (operations a second).
    pub(crate) unknown_from: Option<f64>,
    /// Highest rate that the bench can offer (operations a second).
    pub(crate) bench: Option<f64>,
    /// Number of the probe in which the store dies, counted from 0.
    pub(crate) dies_at: Option<u64>,
    /// Whether other programs use the machine in the probe of that number.
    pub(crate) disturbed: fn(u64) -> bool,
}

impl Store {
    /// A store at which nothing goes wrong.
    pub(crate) fn new(queue: Queue, noise: Noise) -> Self {
        Self {
            queue,
            noise,
            breaks_from: None,
            unknown_from: None,
            bench: None,
            dies_at: None,
            disturbed: |_| false,
        }
    }

    /// Answers a probe.
    pub(crate) fn probe(&self, rate: f64, seed: u64, probe: u64) -> Observation {
        let at = |limit: Option<f64>| limit.is_some_and(|limit| rate >= limit);
        if self.dies_at.is_some_and(|dies| probe >= dies) {
            return Observation {
                rate,
                ended: Ended::Gone,
                margins: Vec::new(),
                latency: None,
                seconds: BESIDES,
            };
        }
        if self.bench.is_some_and(|bench| rate > bench) {
            return Observation {
                rate,
                ended: Ended::BenchLimited,
                margins: Vec::new(),
                latency: None,
                seconds: BESIDES,
            };
        }
        if (self.disturbed)(probe) {
            let (ended, seconds) = (Ended::MachineLimited, self.queue.hold + BESIDES);
            return Observation { rate, ended, margins: vec![900.0], latency: Some(9.0), seconds };
        }
        let latency = self.queue.percentile(rate, self.noise, seed, probe);
        let ratio = latency / self.queue.objective;
        let ended = if at(self.breaks_from) {
            Ended::Broke
        } else if at(self.unknown_from) {
            Ended::Unknown
        } else if ratio <= 1.0 {
            Ended::Met
        } else {
            Ended::Missed { objective: 0, ratio }
        };
        Observation {
            rate,
            ended,
            margins: vec![ratio],
            latency: Some(latency),
            seconds: self.queue.hold + BESIDES,
        }
    }

    /// Takes a search through to its end.
    pub(crate) fn drive(&self, search: &mut Search, seed: u64) -> Conclusion {
        loop {
            match search.next() {
                Step::Probe(rate) => search.told(self.probe(rate, seed, search.observations().len() as u64)),
                Step::Done(conclusion) => return *conclusion,
            }
        }
    }
}
