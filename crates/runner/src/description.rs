//! The description of what a process is to drive in a trial: data, and nothing that only this machine knows.

use std::time::Duration;

use acidtest_engine::Load;
use acidtest_model::{Address, Durability, Role, Secret, StoreError, Tls};
use acidtest_workloads::{
    Place, TrialSetup, Values, Workload, WorkloadSpec, WorkloadTrial, hosted::HostedTrial,
};
use serde::{Deserialize, Serialize};

use crate::OpenOptions;

/// What a process is to drive: some of a trial's clients, on a store that holds the trial's data already.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrialDescription {
    /// The workload's name.
    pub workload: String,
    pub parameters: Values,
    /// The trial, and which of its clients the process drives.
    pub setup: TrialSetup,
    /// When the trial's own times begin, in nanoseconds of the clock that the process tells; they may have begun before
    /// the process did.
    pub origin: i64,
    /// The store's name.
    pub store: String,
    /// Where the store is. That of a file is its name in the folder in which the process runs.
    pub address: WrittenAddress,
    /// The durability level of a store that has no server to set it.
    pub durability: Option<Durability>,
    /// Where the store's hard locks are kept, if it keeps none of its own.
    pub locks: Option<WrittenAddress>,
    /// Where the trial keeps its data.
    pub place: Place,
    /// Where the gateway is that the clients talk to in front of the store, if there is one, and their token.
    pub gateway: Option<(WrittenAddress, String)>,
    /// How clients are driven, in all processes together.
    pub load: Load,
}

/// An address with its password, which goes to a process by its standard input and nowhere else.
#[derive(Clone, Serialize, Deserialize)]
pub struct WrittenAddress {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    host: String,
    port: Option<u16>,
    socket: Option<String>,
    path: String,
    tls: Option<Box<Tls>>,
    connect_timeout: Duration,
}

impl std::fmt::Debug for WrittenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Address::from(self.clone()).fmt(f)
    }
}

impl From<&Address> for WrittenAddress {
    fn from(address: &Address) -> Self {
        let Address { scheme, user, password, host, port, socket, path, tls, connect_timeout } =
            address.clone();
        let password = password.map(|password| password.reveal().to_owned());
        Self { scheme, user, password, host, port, socket, path, tls, connect_timeout }
    }
}

impl From<WrittenAddress> for Address {
    fn from(written: WrittenAddress) -> Self {
        let WrittenAddress { scheme, user, password, host, port, socket, path, tls, connect_timeout } =
            written;
        let password = password.map(Secret::new);
        Self { scheme, user, password, host, port, socket, path, tls, connect_timeout }
    }
}

impl TrialDescription {
    /// The workload of the trial.
    ///
    /// # Errors
    /// There is no such workload in this program, or a parameter is wrong.
    pub fn workload(&self) -> Result<Box<dyn Workload>, String> {
        let kind = acidtest_workloads::workload(&self.workload)
            .ok_or_else(|| format!("there is no workload \"{}\"", self.workload))?;
        (kind.with)(&self.parameters)
    }

    /// The load, with the names of the workload's operations.
    #[must_use]
    pub fn load(&self, workload: &WorkloadSpec) -> Load {
        Load { operations: workload.operations, spans: workload.spans, ..self.load.clone() }
    }

    /// The trial as the host of an embedded store knows it.
    pub(crate) fn hosted(&self) -> HostedTrial {
        HostedTrial {
            workload: self.workload.clone(),
            parameters: self.parameters.clone(),
            lock: self.setup.lock,
            place: self.place.clone(),
        }
    }

    /// The store's address, and that of its lock service.
    pub(crate) fn addresses(&self) -> (Address, Option<Address>) {
        (self.address.clone().into(), self.locks.clone().map(Address::from))
    }

    pub(crate) fn options<'a>(&self, locks: Option<&'a Address>) -> OpenOptions<'a> {
        OpenOptions { durability: self.durability, locks, peers: &[] }
    }

    /// The trial's clients of this process.
    pub(crate) fn tasks(
        &self,
        trial: &dyn WorkloadTrial,
        store: &dyn acidtest_workloads::Store,
    ) -> Result<Vec<acidtest_engine::ClientTask>, StoreError> {
        if let (Some((address, token)), Some(services)) = (&self.gateway, trial.services()) {
            services.announce(Role::Gateway, &address.clone().into(), Some(token))?;
        }
        let own = (0..self.setup.clients as usize).filter(|client| self.setup.part.has(*client));
        own.map(|_| trial.client(store, &self.place)).collect()
    }
}
