//! The services that a trial has in front of the store: a gateway, and where its queue is in a broker that broker and a
//! collector. They are started for the trial, one after the other, and end with it.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use acidtest_lab::{Deployment, Lab, LabError, Lifetime, Member, MemberSpec};
use acidtest_model::{Address, Durability, Role};
use acidtest_workloads::Front;

use crate::{
    Failure, Interrupt,
    answer::{AGAIN, READY, takes_connections},
};

/// The exit code of a gateway or a collector that does not reach its database or its broker.
const UNREACHED: i32 = 3;

/// One that has lived for so long had reached them.
const LIVED: Duration = Duration::from_secs(30);

/// The services of a trial, in the order in which they were started.
#[derive(Default)]
pub(crate) struct Services(Vec<Service>);

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

    /// Starts it again if it has ended because it does not reach what it needs, as whoever supervises it would. Returns
    /// whether it has done so: not if it goes on like that for too long.
    fn revive(&mut self) -> bool {
        if self.version.is_some() || self.member().and_then(Member::exit_code) != Some(UNREACHED) {
            return false;
        }
        let now = Instant::now();
        if now.duration_since(self.begun) > LIVED {
            self.unreached = None;
        }
        self.begun = now;
        let since = *self.unreached.get_or_insert(now);
        now.duration_since(since) < READY && self.member().is_some_and(|member| member.restart().is_ok())
    }
}

impl Services {
    /// Starts the next one, and waits until it takes connections. Returns its address, and the token of the trial's clients
    /// if it has clients.
    ///
    /// # Errors
    /// It cannot be started, it ends, or the run was interrupted.
    pub(crate) async fn start(
        &mut self,
        lab: &Lab,
        program: &Path,
        front: &Front,
        interrupt: &Interrupt,
    ) -> Result<(Address, Option<String>), Failure> {
        let role = front.role;
        let version =
            front.server.map(|server| Ok::<_, LabError>(Lab::locate(server)?.version)).transpose()?;
        let spec = MemberSpec {
            host: version.is_none().then_some(program),
            arguments: &front.arguments,
            secrets: &front.secrets,
            ..MemberSpec::server(role, front.server.unwrap_or(role.name()), Durability::Disk)
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
            if !service.revive() {
                service.deployment.check()?;
            }
            if interrupt.is_set() {
                return Err(Failure::Store(format!("interrupted while the {role} started")));
            }
            if begun.elapsed() > READY {
                return Err(Failure::Store(format!(
                    "the {role} takes no connections after {} s",
                    READY.as_secs()
                )));
            }
            tokio::time::sleep(AGAIN).await;
        }
        self.0.push(service);
        Ok((address, token))
    }

    /// Ends all of them, the last one first: none has to do without one that it needs.
    ///
    /// # Errors
    /// The first failure: one cannot be ended, or its folder cannot be removed.
    pub(crate) fn end(&mut self) -> Result<(), LabError> {
        let mut first = Ok(());
        for mut service in self.0.drain(..).rev() {
            let ended = service.deployment.stop();
            first = first.and(ended);
        }
        first
    }

    /// Starts the one with this role again, if it has ended because it does not reach what it needs.
    pub(crate) fn revive(&mut self, role: Role) -> bool {
        self.0.iter_mut().any(|service| service.role == role && service.revive())
    }

    /// The versions of those that are not acidtest's own, by role.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().filter_map(|service| Some((service.role.to_string(), service.version.clone()?)))
    }

    /// All members.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.0.iter().flat_map(|service| service.deployment.members())
    }

    /// The member with this role.
    pub(crate) fn member_mut(&mut self, role: Role) -> Option<&mut Member> {
        self.0.iter_mut().find(|service| service.role == role)?.member()
    }
}
