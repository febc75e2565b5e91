//! The services in front of a log store: a gateway, and where its queue is in a broker that broker and a collector.

use std::time::Duration;

use acidtest_model::{
    Address, Disruption, Durability, EffectiveDurability, EffectiveSettings, Role, StoreError, Task,
};

use super::{
    Architecture, Rows, first,
    http::Gateway,
    settling,
    trial::{LogsTrial, port},
};
use crate::{Place, ServiceSpec, Services, Store, time_opening};

impl Services for LogsTrial {
    fn next(
        &self,
        store: &dyn Store,
        place: &Place,
        started: &[(Role, Address)],
    ) -> Result<Option<ServiceSpec>, StoreError> {
        let sink = port(store)?.sink(place).filter(|_| self.parameters.gateway.is_none());
        let Some(sink) = sink else { return Ok(None) };
        let address = |role| started.iter().find(|(each, _)| *each == role).map(|(_, address)| address);
        // without a user, whose password would be that of the database
        let queue = address(Role::Queue).map(|address| Address { user: None, ..address.clone() });
        let password = || sink.address.password.as_ref().map(|word| ("ACIDTEST_PASSWORD", word.clone()));
        let ours = |role, arguments| {
            Some(ServiceSpec { role, server: None, arguments, secrets: password().into_iter().collect() })
        };
        Ok(match (self.parameters.broker(), &queue) {
            (Some(broker), None) => Some(ServiceSpec {
                role: Role::Queue,
                server: Some(broker),
                arguments: Vec::new(),
                secrets: Vec::new(),
            }),
            (_, queue) if address(Role::Gateway).is_none() => {
                ours(Role::Gateway, self.parameters.gateway(&sink, queue.as_ref()))
            }
            (_, Some(queue)) if address(Role::Collector).is_none() => {
                ours(Role::Collector, self.parameters.collector(&sink, queue))
            }
            _ => None,
        })
    }

    fn running(&self) -> Option<Address> {
        self.parameters.running_gateway()
    }

    fn announce(&self, role: Role, address: &Address, token: Option<&str>) -> Result<(), StoreError> {
        let service = match role {
            Role::Gateway => &self.gateway,
            Role::Collector => &self.collector,
            _ => return Ok(()),
        };
        let gateway = Gateway::new(address, token.unwrap_or_default())?;
        service.get_or_init(|| gateway);
        Ok(())
    }

    fn probe<'a>(&'a self, store: &'a dyn Store) -> Task<'a, Result<Option<String>, StoreError>> {
        Box::pin(async move {
            let (Some(gateway), Some(table)) = (self.gateway.get(), self.parameters.others_table()) else {
                return Ok(None);
            };
            let rows = Rows::among_others(table, &format!("{}first-", self.mark));
            first::send_first(gateway, port(store)?, &rows, first::PATIENCE).await
        })
    }

    fn connecting<'a>(&'a self, store: &'a dyn Store) -> Task<'a, Result<Option<Duration>, StoreError>> {
        match self.gateway.get() {
            Some(gateway) => Box::pin(time_opening(gateway.opened())),
            None => store.connecting(),
        }
    }

    fn settles(&self) -> Duration {
        // a database may store a thousand a second
        let stored = Duration::from_millis(self.scenario.ledger.acknowledged());
        stored + if self.has_hidden() { settling::LONGEST } else { Duration::ZERO }
    }

    fn is_noticed(&self, member: Role, disruption: &Disruption) -> bool {
        let has_queue = self.ways().is_none_or(|(architecture, _)| architecture == Architecture::Queued);
        if self.gateway.get().is_none() || !has_queue {
            return true;
        }
        match member {
            Role::Clients => true,
            // a kill may fall between two requests, and strikes what waits there; one that is asked to stop stores it
            Role::Gateway => {
                self.parameters.broker().is_some() || !matches!(disruption, Disruption::Kill { .. })
            }
            _ => false,
        }
    }

    fn durability_of(&self, member: Role, settings: &EffectiveSettings) -> EffectiveDurability {
        match member {
            // what waits in a broker is not kept here
            Role::Gateway if self.parameters.broker().is_some() => EffectiveDurability::Disk,
            Role::Gateway | Role::Queue => self.queue().map_or(Durability::Disk, |(level, _)| level).into(),
            Role::Collector => EffectiveDurability::Disk,
            _ => self.sink.get().map_or(settings.durability, |kept| kept.durability),
        }
    }

    /// The level is the lower one of the queue's and the database's. A database in a file ends with whoever stores in it.
    fn sets_durability(&self, member: Role, settings: &EffectiveSettings) -> bool {
        let has_broker = self.ways().is_some_and(|(_, queue)| queue.broker().is_some());
        let is_shown = |level: EffectiveDurability| level == settings.durability;
        let sink = self.durability_of(Role::Server, settings);
        let has_file = self.sink.get().is_some_and(|kept| kept.within) && is_shown(sink);
        let has_queue = self.queue().is_some_and(|(level, _)| is_shown(level.into()));
        match member {
            Role::Server => is_shown(sink),
            Role::Gateway => !has_broker && (has_queue || has_file),
            Role::Queue => has_broker && has_queue,
            Role::Collector => has_broker && has_file,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::OnceLock};

    use super::*;
    use crate::logs::{LogQueue, Parameters, trial::Kept};

    /// A kill of a gateway that has a queue of its own strikes what waits there, also between two requests.
    #[test]
    fn clients_need_not_notice_what_strikes_a_queue() {
        let noticed = |architecture, queue, member, fault: &str| {
            let trial = LogsTrial::reached(Parameters { architecture, queue, ..Parameters::default() });
            let faults: acidtest_model::Faults = fault.parse().unwrap();
            trial.is_noticed(member, &faults.0[0].disruption)
        };
        let (queued, direct) = (Architecture::Queued, Architecture::Direct);
        for queue in [LogQueue::Disk, LogQueue::Memory] {
            assert!(!noticed(queued, queue, Role::Gateway, "kill:gateway@1s"));
            assert!(noticed(queued, queue, Role::Gateway, "restart:gateway@1s"));
            assert!(!noticed(queued, queue, Role::Server, "kill@1s"));
        }
        assert!(noticed(queued, LogQueue::Nats, Role::Gateway, "kill:gateway@1s"));
        assert!(!noticed(queued, LogQueue::Nats, Role::Collector, "kill:collector@1s"));
        assert!(noticed(direct, LogQueue::Disk, Role::Gateway, "kill:gateway@1s"));
        assert!(noticed(direct, LogQueue::Disk, Role::Server, "kill@1s"));
        assert!(noticed(queued, LogQueue::Disk, Role::Clients, "disconnect@1s"));
    }

    /// The level that is shown is that of those who keep entries at it.
    #[test]
    fn a_level_is_of_the_member_that_keeps_entries_at_it() {
        use Durability::{Disk, None, Process};
        let keep = |architecture, queue, sink: Durability, within| {
            let trial = LogsTrial {
                sink: OnceLock::from(Kept { durability: sink.into(), within }),
                ..LogsTrial::reached(Parameters { architecture, queue, ..Parameters::default() })
            };
            let durability = trial.queue().map_or(sink, |(level, _)| level.min(sink)).into();
            let settings = EffectiveSettings {
                version: String::new(),
                durability,
                because: String::new(),
                settings: BTreeMap::new(),
                tls: Option::None,
            };
            Role::ALL.into_iter().filter(|role| trial.sets_durability(*role, &settings)).collect::<Vec<_>>()
        };
        let (queued, direct) = (Architecture::Queued, Architecture::Direct);
        for (architecture, queue, sink, members) in [
            (direct, LogQueue::Disk, Disk, &[Role::Server][..]),
            (queued, LogQueue::Disk, Disk, &[Role::Server, Role::Gateway]),
            (queued, LogQueue::Disk, Process, &[Role::Server]),
            (queued, LogQueue::Memory, Disk, &[Role::Gateway]),
            (queued, LogQueue::Nats, Disk, &[Role::Queue]),
            (queued, LogQueue::RabbitMq, Disk, &[Role::Server, Role::Queue]),
            (queued, LogQueue::RabbitMq, None, &[Role::Server]),
        ] {
            assert_eq!(keep(architecture, queue, sink, false), members, "{architecture:?} {queue:?} {sink}");
        }
        // a file is in the process that stores in it
        for (architecture, queue, role) in [
            (direct, LogQueue::Disk, Role::Gateway),
            (queued, LogQueue::Disk, Role::Gateway),
            (queued, LogQueue::RabbitMq, Role::Collector),
        ] {
            assert!(keep(architecture, queue, Disk, true).contains(&role), "{architecture:?} {queue:?}");
        }
    }

    #[test]
    fn durability_is_what_the_weaker_of_queue_and_database_has() {
        let trial = |queue| LogsTrial {
            sink: OnceLock::from(Kept { durability: EffectiveDurability::Disk, within: false }),
            ..LogsTrial::reached(Parameters { queue, ..Parameters::default() })
        };
        let settings = EffectiveSettings {
            version: String::new(),
            durability: EffectiveDurability::Disk,
            because: String::new(),
            settings: BTreeMap::new(),
            tls: None,
        };
        for (queue, at_gateway, at_queue) in [
            (LogQueue::Disk, Durability::Disk, Durability::Disk),
            (LogQueue::Memory, Durability::None, Durability::None),
            (LogQueue::RabbitMq, Durability::Disk, Durability::Disk),
            (LogQueue::Nats, Durability::Disk, Durability::Process),
        ] {
            let trial = trial(queue);
            assert_eq!(trial.durability_of(Role::Gateway, &settings), at_gateway, "{queue:?}");
            assert_eq!(trial.durability_of(Role::Queue, &settings), at_queue, "{queue:?}");
            assert_eq!(trial.durability_of(Role::Collector, &settings), Durability::Disk, "{queue:?}");
            assert_eq!(trial.durability_of(Role::Server, &settings), Durability::Disk, "{queue:?}");
        }
    }
}
