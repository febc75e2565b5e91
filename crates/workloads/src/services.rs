//! The services that stand between the clients of a trial and its store.

use std::time::Duration;

use acidtest_model::{
    Address, Disruption, EffectiveDurability, EffectiveSettings, Role, Secret, StoreError, Task,
};

use crate::{Place, Store};

/// A service to be started.
#[derive(Clone, Debug)]
pub struct ServiceSpec {
    pub role: Role,
    /// The store whose server it is; none for a service of acidtest's own, whose role says what it is.
    pub server: Option<&'static str>,
    /// Its arguments, without a password.
    pub arguments: Vec<String>,
    /// Passwords that it needs, by the environment variables that it takes them from.
    pub secrets: Vec<(&'static str, Secret)>,
}

/// The services that a trial has in front of a store: those that its clients talk to, and those that have a part in what becomes
/// of their requests. Each has a role. They are started one after the other, once the data is loaded; or they run already, as a
/// user's own. Where a trial has none, its clients talk to the store, and what they are acknowledged is kept there.
pub trait Services: Send + Sync {
    /// The next one to start, given those that were started; `None` when all were.
    ///
    /// # Errors
    /// The store cannot be behind these services.
    fn next(
        &self,
        store: &dyn Store,
        place: &Place,
        started: &[(Role, Address)],
    ) -> Result<Option<ServiceSpec>, StoreError>;

    /// The one that clients talk to, if it runs already; then none is started.
    fn running(&self) -> Option<Address>;

    /// Tells where the one with this role is, and the token by which it knows the trial's clients, if it has clients.
    ///
    /// # Errors
    /// A certificate that the address names cannot be used.
    fn announce(&self, role: Role, address: &Address, token: Option<&str>) -> Result<(), StoreError>;

    /// Sends something through the one that runs already, and finds it in the store. It is removed with the trial's data. Returns
    /// why it is not known whether it comes there, if it is not.
    ///
    /// # Errors
    /// The service does not take it, or stores it elsewhere.
    fn probe<'a>(&'a self, store: &'a dyn Store) -> Task<'a, Result<Option<String>, StoreError>>;

    /// Opens a connection as clients do, and closes it. Returns how long the opening took; `None` where there are no connections.
    fn connecting<'a>(&'a self, store: &'a dyn Store) -> Task<'a, Result<Option<Duration>, StoreError>>;

    /// How long what was acknowledged may be on its way into the store, before the audit can read it there.
    fn settles(&self) -> Duration;

    /// Whether clients that are at work are sure to notice at once what is done to the member with this role.
    fn is_noticed(&self, member: Role, disruption: &Disruption) -> bool;

    /// The durability level of what the member with this role keeps, given the trial's own settings. Members are the services, and
    /// the store's server.
    fn durability_of(&self, member: Role, settings: &EffectiveSettings) -> EffectiveDurability;

    /// Whether the durability level of these settings is that of what the member with this role keeps.
    fn sets_durability(&self, member: Role, settings: &EffectiveSettings) -> bool;
}
