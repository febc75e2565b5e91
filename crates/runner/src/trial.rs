//! One trial on one store: loading, driving the clients, reading the final state back, audit, clearing away.

use std::{
    path::Path,
    pin::pin,
    time::{Duration, Instant},
};

use acidtest_engine::{ClientTask, Load, Measurement, Outcome};
use acidtest_lab::Lab;
use acidtest_model::{
    Address, Commands, Disruption, EffectiveDurability, EffectiveSettings, Promotion, Role, Secret,
    StoreError, Timeline,
};
use acidtest_results::StopFigures;
use acidtest_workloads::{
    AuditResult, LoadProgress, Place, Preparation, Services, TrialSetup, Verdict, Workload, WorkloadTrial,
    hosted::HostedTrial,
};

use crate::{
    Failure, Watcher,
    answer::{PATIENCE, takes_connections, within},
    driver::{Driver, Spread},
    instance::{Instance, LostMember},
    watch::{self, Driven},
};

/// Time between two checks of the progress of loading.
const LOOK: Duration = Duration::from_millis(100);

/// Longest time that loading may go on without another row.
const STALLED: Duration = Duration::from_mins(10);

/// How long it may take to find a trial's rows among those of others.
const AMONG_OTHERS: Duration = Duration::from_mins(10);

/// How many connections are opened to find out how long that takes, and within which time at most.
const CONNECTIONS: usize = 15;
const CONNECTING: Duration = Duration::from_secs(2);

/// Time allowed for each row when a trial is prepared or its final state is read.
const ROW: Duration = Duration::from_micros(100);

/// A trial of a workload with its place in the store. Its steps are to be taken in their order: [`load`](Self::load)
/// (or not, where its data is there already), [`prepare`](Self::prepare), [`settings`](Self::settings),
/// [`drive`](Self::drive), [`audit`](Self::audit), [`unload`](Self::unload).
pub struct TrialRun<'a> {
    trial: Box<dyn WorkloadTrial>,
    setup: TrialSetup,
    /// What the host of an embedded store has to know of it.
    hosted: HostedTrial,
    spread: Option<Spread<'a>>,
    /// Where the gateway is that the clients talk to, and their token; none where they talk to the store.
    gateway: Option<(Address, String)>,
    /// The user's own, which bring faults about on a server of the user's own.
    commands: Commands,
    /// How the operator of a cluster chooses a new leader.
    promotion: Promotion,
}

impl<'a> TrialRun<'a> {
    /// A trial of the workload, at a place of its own or over the data that an earlier trial left at that place.
    #[must_use]
    pub fn new(workload: &dyn Workload, setup: TrialSetup, place: Place) -> Self {
        let spec = workload.spec();
        let hosted = HostedTrial {
            workload: spec.name.to_owned(),
            parameters: spec.values.clone(),
            lock: setup.lock,
            place,
        };
        Self {
            trial: workload.trial(setup.clone()),
            setup,
            hosted,
            spread: None,
            gateway: None,
            commands: Commands::default(),
            promotion: Promotion::default(),
        }
    }

    /// The same with its clients spread over several processes.
    #[must_use]
    pub fn spread(self, spread: Option<Spread<'a>>) -> Self {
        Self { spread, ..self }
    }

    /// The same with the user's own commands for faults.
    #[must_use]
    pub fn commands(self, commands: Commands) -> Self {
        Self { commands, ..self }
    }

    /// The same with this rule by which a replica is promoted.
    #[must_use]
    pub fn promotion(self, promotion: Promotion) -> Self {
        Self { promotion, ..self }
    }

    /// How many rows [`load`](Self::load) loads.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.trial.rows()
    }

    #[must_use]
    pub fn place(&self) -> &Place {
        &self.hosted.place
    }

    /// Loads the data, shows the progress, and returns how many seconds it took.
    ///
    /// # Errors
    /// The store's own; that loading stands still; that it was interrupted.
    pub async fn load(&self, instance: &Instance, watcher: &mut Watcher<'_>) -> Result<f64, Failure> {
        let (loaded, begun) = (LoadProgress::default(), Instant::now());
        let mut loading = self.trial.load(instance.store(), &self.hosted.place, &loaded);
        let mut moved = (0, Instant::now());
        loop {
            if let Ok(done) = tokio::time::timeout(LOOK, &mut loading).await {
                done?;
                return Ok(begun.elapsed().as_secs_f64());
            }
            if watcher.interrupt.is_set() {
                return Err(Failure::Store("interrupted while data was loaded".to_owned()));
            }
            let rows = loaded.rows();
            if rows != moved.0 {
                moved = (rows, Instant::now());
            } else if moved.1.elapsed() > STALLED {
                return Err(Failure::Store(format!(
                    "loading the data has stalled: {rows} of {} rows, and none for {} min",
                    self.rows(),
                    STALLED.as_secs() / 60
                )));
            }
            watcher.observer.loading(rows, self.rows(), begun.elapsed());
        }
    }

    /// Has the clients talk to a gateway that runs already, once a first entry has come through it into the store, or may
    /// wait there.
    ///
    /// # Errors
    /// Nobody takes connections there, it does not take what has this token, or it stores elsewhere.
    pub async fn use_running_gateway(
        &mut self,
        token: &Secret,
        instance: &Instance,
        watcher: &mut Watcher<'_>,
    ) -> Result<(), Failure> {
        let Some(services) = self.trial.services() else { return Ok(()) };
        let Some(address) = services.running() else { return Ok(()) };
        let endpoint = Address { port: address.port.or(Some(80)), ..address.clone() };
        if !takes_connections(&endpoint).await {
            return Err(Failure::Store(format!(
                "nothing accepts connections at {address}\n  remedy: start the gateway, or give its host and port \
                 (--gateway)"
            )));
        }
        services.announce(Role::Gateway, &address, Some(token.reveal()))?;
        self.gateway = Some((address, token.reveal().to_owned()));
        // it is looked for among rows of others
        let trying = within(AMONG_OTHERS, "trying the gateway", services.probe(instance.store()));
        if let Some(doubt) =
            unless_interrupted(trying, watcher, "trying the gateway with a first entry").await?
        {
            watcher.observer.doing(&doubt);
        }
        Ok(())
    }

    /// Starts the services that the trial has in front of the store. `program` is acidtest's own.
    ///
    /// # Errors
    /// One cannot be started, or the run was interrupted.
    pub async fn start_services(
        &mut self,
        instance: &mut Instance,
        lab: &Lab,
        program: &Path,
        watcher: &mut Watcher<'_>,
    ) -> Result<(), Failure> {
        let Some(services) = self.trial.services() else { return Ok(()) };
        let mut started = Vec::new();
        while let Some(spec) = services.next(instance.store(), &self.hosted.place, &started)? {
            watcher.observer.doing(&format!("starting the {}", spec.role));
            let (address, token) = instance.services.start(lab, program, &spec, watcher.interrupt).await?;
            services.announce(spec.role, &address, token.as_deref())?;
            started.push((spec.role, address.clone()));
            self.gateway = token.map(|token| (address, token)).or(self.gateway.take());
        }
        Ok(())
    }

    /// The durability level of what the member with this role keeps, at these settings.
    #[must_use]
    pub fn durability_of(&self, member: Role, settings: &EffectiveSettings) -> EffectiveDurability {
        let services = self.trial.services();
        services.map_or(settings.durability, |services| services.durability_of(member, settings))
    }

    /// Whether the durability level of these settings is that of what the member with this role keeps.
    #[must_use]
    pub fn sets_durability(&self, member: Role, settings: &EffectiveSettings) -> bool {
        let services = self.trial.services();
        services.map_or(member == Role::Server, |services| services.sets_durability(member, settings))
    }

    /// Whether clients that are at work are sure to notice at once what is done to the member with this role.
    #[must_use]
    pub fn is_noticed(&self, member: Role, disruption: &Disruption) -> bool {
        self.trial.services().is_none_or(|services| services.is_noticed(member, disruption))
    }

    /// What tells the trial from every other one.
    #[must_use]
    pub fn mark(&self) -> &str {
        &self.setup.mark
    }

    /// Whether its clients talk to a gateway, and not to the store.
    #[must_use]
    pub fn has_gateway(&self) -> bool {
        self.gateway.is_some()
    }

    /// Lets the workload prepare the trial and find out facts, such as query plans; that may load the data again,
    /// which took `load_seconds` before.
    ///
    /// # Errors
    /// The store's own; that it takes too long; that it was interrupted.
    pub async fn prepare(
        &self,
        instance: &Instance,
        load_seconds: f64,
        watcher: &mut Watcher<'_>,
    ) -> Result<Preparation, Failure> {
        let loading = Duration::try_from_secs_f64(load_seconds * 3.0).unwrap_or(PATIENCE);
        let most = PATIENCE + loading + ROW * u32::try_from(self.rows()).unwrap_or(u32::MAX);
        let preparing = self.trial.prepare(instance.store(), &self.hosted.place);
        let preparing = within(most, "preparing the trial", preparing);
        unless_interrupted(preparing, watcher, "preparing the trial").await
    }

    /// How long opening a connection takes, as the trial's clients do: the median of several, one after the other, in
    /// nanoseconds. `None` for a store without connections.
    ///
    /// # Errors
    /// The store's own; that it does not answer.
    pub async fn connecting(&self, instance: &Instance) -> Result<Option<f64>, Failure> {
        let begun = Instant::now();
        let mut took = Vec::new();
        while took.len() < CONNECTIONS && begun.elapsed() < CONNECTING {
            let connecting = match self.trial.services() {
                Some(services) => services.connecting(instance.store()),
                None => instance.store().connecting(),
            };
            match within(PATIENCE, "connecting", connecting).await? {
                Some(span) => took.push(span),
                None => return Ok(None),
            }
        }
        took.sort_unstable();
        Ok(took.get(took.len() / 2).map(|span| span.as_nanos() as f64))
    }

    /// The settings that the trial is driven at, read back.
    ///
    /// # Errors
    /// The store's own; that it does not answer.
    pub async fn settings(&self, instance: &Instance) -> Result<EffectiveSettings, Failure> {
        let settings = self.trial.settings(instance.store(), &self.hosted.place, &instance.effective);
        Ok(within(PATIENCE, "reading the settings", settings).await?)
    }

    /// Drives the clients to the end of the load, and carries out the timeline meanwhile.
    ///
    /// # Errors
    /// No client could connect, or acidtest itself failed. A server that is lost is no error: the result says so.
    pub async fn drive(
        &self,
        instance: &mut Instance,
        load: Load,
        timeline: &Timeline,
        watcher: &mut Watcher<'_>,
    ) -> Result<Driven, Failure> {
        let given = instance.give_to_host(self.hosted.clone(), watcher.interrupt).await;
        let driven = match given {
            Ok(()) => self.drive_there(instance, load, timeline, watcher).await,
            Err(failure) => Err(failure),
        };
        let is_lost = driven.as_ref().is_ok_and(|driven| driven.lost.is_some());
        let taken = instance.take_from_host().await;
        // one that is lost has been noticed; otherwise the first failure is the one that is reported
        if is_lost { driven } else { driven.and_then(|driven| taken.map(|()| driven)) }
    }

    /// Drives the clients where the store is.
    async fn drive_there(
        &self,
        instance: &mut Instance,
        load: Load,
        timeline: &Timeline,
        watcher: &mut Watcher<'_>,
    ) -> Result<Driven, Failure> {
        let (extent, place) = ((load.extent, load.timeout), &self.hosted.place);
        let driver = if let Some(spread) = &self.spread {
            Driver::elsewhere(spread, instance, &self.setup, &self.hosted, self.gateway.as_ref(), load)?
        } else {
            let clients = (0..self.setup.clients).map(|_| self.trial.client(instance.store(), place));
            Driver::here(load, clients.collect::<Result<Vec<ClientTask>, StoreError>>()?)?
        };
        watch::drive(
            &*self.trial,
            instance,
            extent,
            driver,
            (timeline, (&self.commands, self.promotion)),
            watcher,
        )
        .await
    }

    /// Audits the trial: holds its ledger against the final state of the store.
    pub async fn audit(
        &self,
        instance: &mut Instance,
        driven: &Driven,
        watcher: &mut Watcher<'_>,
    ) -> AuditResult {
        if let (None, Some(cluster)) = (&driven.lost, instance.cluster()) {
            watcher.observer.doing("waiting until the members have the same log");
            cluster.settle().await;
        }
        let whole = match &driven.lost {
            Some(LostMember { how, .. }) => Err(how.clone()),
            None => self.audit_all(instance, watcher).await,
        };
        let mut audited = match whole {
            Ok(audited) => audited,
            // the ledger by itself may prove something
            Err(cause) => self.trial.audit(Err(unreadable(cause)), &self.hosted.place).await,
        };
        if let (None, Some(cluster)) = (&driven.lost, instance.cluster()) {
            watcher.observer.doing("comparing the members");
            cluster.compare(&self.hosted.place, &mut audited.audit).await;
        }
        if let Some(damage) = driven.lost.as_ref().and_then(|lost| lost.damage.as_ref()) {
            audited.audit.unreadable(damage);
        }
        doubt_if_idle(&mut audited, &driven.measurement);
        doubt_if_shared(&mut audited, &driven.measurement);
        audited
    }

    /// The audit of the final state, for which the services in front of the store go on; or why it cannot be had in time.
    async fn audit_all(
        &self,
        instance: &mut Instance,
        watcher: &mut Watcher<'_>,
    ) -> Result<AuditResult, String> {
        let reading = PATIENCE + ROW * u32::try_from(self.trial.rows_left()).unwrap_or(u32::MAX);
        let settling = self.trial.services().map_or(Duration::ZERO, Services::settles);
        let (store, services) = instance.store_and_services();
        let mut auditing = self.trial.audit(Ok(store), &self.hosted.place);
        let (most, doing) = match settling {
            Duration::ZERO => (reading, "auditing"),
            settling => (reading + settling, "auditing, once everything that was acknowledged is stored"),
        };
        let begun = Instant::now();
        watcher.observer.going_on(doing, Duration::ZERO);
        loop {
            if let Ok(audited) = tokio::time::timeout(LOOK, &mut auditing).await {
                return Ok(audited);
            }
            if begun.elapsed() > most {
                return Err(format!("no answer within {} s", most.as_secs()));
            }
            if watcher.interrupt.is_set() && begun.elapsed() > reading {
                return Err("interrupted while waiting for acknowledged entries to be stored".to_owned());
            }
            watcher.observer.going_on(doing, begun.elapsed());
            if let Some(how) = services.ended() {
                return Err(how);
            }
        }
    }

    /// Notes that the server is there after all, if it is not known to be lost.
    pub(crate) async fn see_afterwards(&self, instance: &Instance, stopped: &mut Option<StopFigures>) {
        // what is gone may be what clients talk to in front of it
        let gone = stopped.as_mut().filter(|stopped| stopped.is_server_gone() && !self.has_gateway());
        let Some(stopped) = gone else { return };
        if instance.reopening().open().await.is_ok() {
            stopped.answers_after_all();
        }
    }

    /// Removes the trial's data.
    ///
    /// # Errors
    /// The store's own; that it does not answer. What cannot be removed now is removed with the namespace.
    pub async fn unload(&self, instance: &Instance) -> Result<(), StoreError> {
        let unloaded = self.trial.unload(instance.store(), &self.hosted.place);
        let is_among_others = self.trial.services().is_some_and(|services| services.running().is_some());
        let most = if is_among_others { AMONG_OTHERS } else { PATIENCE };
        within(most, "removing the data", unloaded).await
    }
}

/// Waits until a step is done, which is doing this, unless the run is interrupted.
async fn unless_interrupted<T>(
    step: impl Future<Output = Result<T, StoreError>>,
    watcher: &mut Watcher<'_>,
    doing: &str,
) -> Result<T, Failure> {
    let (mut step, begun) = (pin!(step), Instant::now());
    watcher.observer.going_on(doing, Duration::ZERO);
    loop {
        if let Ok(done) = tokio::time::timeout(LOOK, &mut step).await {
            return Ok(done?);
        }
        if watcher.interrupt.is_set() {
            return Err(Failure::Store(format!("interrupted while {doing}")));
        }
        watcher.observer.going_on(doing, begun.elapsed());
    }
}

/// Sets the verdict to unknown if nothing was acknowledged in the measured part, although the warm-up's operations
/// are in the ledger too.
pub fn doubt_if_idle(audited: &mut AuditResult, measurement: &Measurement) {
    let acknowledged: u64 = measurement.operations.iter().map(|operation| operation.count(Outcome::Ok)).sum();
    if audited.audit.verdict == Verdict::Holds && acknowledged == 0 {
        audited.audit.verdict = Verdict::Unknown;
        audited.audit.reason = Some("no operation was acknowledged in the measured part".to_owned());
    }
}

/// Sets the verdict to unknown if clients' connections were not, at the end, what they were opened as.
fn doubt_if_shared(audited: &mut AuditResult, measurement: &Measurement) {
    let Some((what, _)) = measurement.doubts.iter().max_by_key(|(_, clients)| **clients) else { return };
    let clients: u64 = measurement.doubts.values().sum();
    let of = if clients == 1 { "one client".to_owned() } else { format!("{clients} clients") };
    audited.audit.withdraw(&format!(
        "at the end of the trial, the connection of {of} was not the same as before: {what}"
    ));
}

fn unreadable(cause: String) -> StoreError {
    StoreError::Server { doing: "reading the final state".to_owned(), address: "the store".to_owned(), cause }
}
