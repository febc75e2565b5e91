//! The services that a trial has in front of the store: a gateway, and where its queue is in a broker that broker and a
//! collector. They are started for the trial, one after the other, and end with it.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use acidtest_lab::{Deployment, Lab, LabError, Lifetime, Member, MemberSpec};
use acidtest_model::{Address, Durability, Encryption, MemberId, Role};
use acidtest_workloads::ServiceSpec;

use crate::{
    Failure, Interrupt,
    answer::{AGAIN, READY, takes_connections},
};

/// The exit code of a gateway or a collector that does not reach its database or its broker.
const UNREACHED: i32 = 3;

/// Time between two starts of one that does not.
const WAIT: Duration = Duration::from_millis(500);

/// The services of a trial, in the order in which they were started.
pub(crate) struct StartedServices {
    started: Vec<Service>,
    /// How long one may not reach what it needs, which may be down for a while.
    pub(crate) patience: Duration,
    /// Whether the connections to them have TLS.
    tls: Encryption,
}

struct Service {
    role: Role,
    deployment: Deployment,
    /// The version of a server that is not acidtest's own; that one ends where it does not reach what it needs.
    version: Option<String>,
    /// When it was last started here, and since when it does not reach what it needs.
    begun: Instant,
    unreached: Option<Instant>,
}

impl Service {
    fn member(&mut self) -> Option<&mut Member> {
        self.deployment.member_mut(self.role)
    }

    /// Whether it has ended because it does not reach what it needs.
    fn does_not_reach(&mut self) -> bool {
        self.version.is_none() && self.member().and_then(Member::exit_code) == Some(UNREACHED)
    }

    /// Starts it again, now and then, if it has ended because it does not reach what it needs, as whoever supervises it
    /// would. Returns whether that is so: not if it has gone on for longer than this.
    fn revive(&mut self, patience: Duration) -> bool {
        if !self.does_not_reach() {
            return false;
        }
        let now = Instant::now();
        let since = *self.unreached.get_or_insert(now);
        if now.duration_since(since) >= patience {
            return false;
        }
        if now.duration_since(self.begun) < WAIT {
            return true;
        }
        self.begun = now;
        // it may have ended again before anybody saw it run
        self.member().is_some_and(|member| member.restart().is_ok()) || self.does_not_reach()
    }
}

impl StartedServices {
    /// None yet.
    pub(crate) fn new(tls: Encryption) -> Self {
        Self { started: Vec::new(), patience: READY, tls }
    }

    /// Starts the next one, and waits until it takes connections. Returns its address, and the token of the trial's clients
    /// if it has clients.
    ///
    /// # Errors
    /// It cannot be started, it ends, or the run was interrupted.
    pub(crate) async fn start(
        &mut self,
        lab: &Lab,
        program: &Path,
        service: &ServiceSpec,
        interrupt: &Interrupt,
    ) -> Result<(Address, Option<String>), Failure> {
        let role = service.role;
        let version =
            service.server.map(|server| Ok::<_, LabError>(Lab::locate(server)?.version)).transpose()?;
        let spec = MemberSpec {
            host: version.is_none().then_some(program),
            arguments: &service.arguments,
            secrets: &service.secrets,
            // a collector takes none, but from whoever looks at how it stands
            tls: self.tls.is_on() && role != Role::Collector,
            ..MemberSpec::server(role, service.server.unwrap_or(role.name()), Durability::Disk)
        };
        let deployment = lab.deploy(spec.store, &[spec], Lifetime::Run)?;
        let begun = Instant::now();
        let mut service = Service { role, deployment, version, begun, unreached: None };
        let gone = || Failure::Other(format!("the {role} was not started: a defect of acidtest"));
        let (address, token) = {
            let member = service.member().ok_or_else(gone)?;
            (member.address().clone(), member.token()?)
        };
        while !takes_connections(&address).await {
            if !service.revive(READY) {
                service.deployment.check()?;
            }
            if interrupt.is_set() {
                return Err(Failure::Store(format!("interrupted while the {role} started")));
            }
            if begun.elapsed() > READY {
                return Err(Failure::Store(format!(
                    "the {role} does not accept connections after {} s",
                    READY.as_secs()
                )));
            }
            tokio::time::sleep(AGAIN).await;
        }
        service.unreached = None;
        self.started.push(service);
        Ok((address, token))
    }

    /// Ends all of them, the last one first: none has to do without one that it needs.
    ///
    /// # Errors
    /// The first failure: one cannot be ended, or its folder cannot be removed.
    pub(crate) fn end(&mut self) -> Result<(), LabError> {
        let mut first = Ok(());
        for mut service in self.started.drain(..).rev() {
            let ended = service.deployment.stop();
            first = first.and(ended);
        }
        first
    }

    /// Starts this one again, if it has ended because it does not reach what it needs.
    pub(crate) fn revive(&mut self, id: MemberId) -> bool {
        let patience = self.patience;
        self.of(id).is_some_and(|service| service.revive(patience))
    }

    /// Notes that this one has taken a connection, so that it reaches what it needs.
    pub(crate) fn has_reached(&mut self, id: MemberId) {
        if let Some(service) = self.of(id) {
            service.unreached = None;
        }
    }

    /// How one has ended, if one has that is not started again.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let patience = self.patience;
        self.started.iter_mut().find_map(|service| {
            let how = service.member()?.ended()?;
            (!service.revive(patience)).then(|| format!("its {} {how}", service.role))
        })
    }

    /// A trial has one service of each role in front of its store.
    fn of(&mut self, id: MemberId) -> Option<&mut Service> {
        self.started.iter_mut().find(|service| id == service.role.into())
    }

    /// The versions of those that are not acidtest's own, by role.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (String, String)> {
        self.started.iter().filter_map(|service| Some((service.role.to_string(), service.version.clone()?)))
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.started.iter().flat_map(|service| service.deployment.members())
    }

    pub(crate) fn member_mut(&mut self, id: MemberId) -> Option<&mut Member> {
        self.of(id)?.member()
    }
}
