//! The members of a deployment: their roles, and how one or several of them are named.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// What a member does in its deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A server of the store's own.
    Server,
    /// The server that keeps the locks of a store that has none of its own.
    Locks,
    /// The gateway that clients send log entries to.
    Gateway,
    /// The broker in which the entries wait that gateways have acknowledged.
    Queue,
    /// What takes entries out of that broker, and stores them.
    Collector,
    /// The processes that drive the clients, which are no member of the store's deployment.
    Clients,
}

impl Role {
    /// The roles that members have: all but [`Clients`](Self::Clients).
    pub const ALL: [Self; 5] = [Self::Server, Self::Locks, Self::Gateway, Self::Queue, Self::Collector];

    /// The role's name, as users write and read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Locks => "locks",
            Self::Gateway => "gateway",
            Self::Queue => "queue",
            Self::Collector => "collector",
            Self::Clients => "clients",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A member of a deployment: its role, with a number where several members have that role. Written as `locks`, `server-2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MemberId {
    /// Its role, which several members may share.
    pub role: Role,
    /// Its number among those with the role, from 1; 0 for the only one.
    number: u16,
}

impl MemberId {
    /// One of several members with this role, by its number, from 1.
    #[must_use]
    pub const fn numbered(role: Role, number: u16) -> Self {
        Self { role, number }
    }

    /// Its number among those with the role; none for the only one.
    #[must_use]
    pub fn number(self) -> Option<u16> {
        Some(self.number).filter(|number| *number > 0)
    }
}

impl From<Role> for MemberId {
    /// The only member with this role.
    fn from(role: Role) -> Self {
        Self { role, number: 0 }
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => write!(f, "{}", self.role),
            number => write!(f, "{}-{number}", self.role),
        }
    }
}

impl From<MemberId> for String {
    fn from(member: MemberId) -> Self {
        member.to_string()
    }
}

impl TryFrom<String> for MemberId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for MemberId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (role, number) = match text.rsplit_once('-') {
            Some((role, number)) => (role, Some(number)),
            None => (text, None),
        };
        let role = Role::ALL.into_iter().find(|known| known.name() == role).ok_or_else(|| {
            format!("no server has the role \"{role}\": roles are {}", Role::ALL.map(Role::name).join(", "))
        })?;
        let Some(number) = number else { return Ok(role.into()) };
        let number = from_one(number)
            .ok_or_else(|| format!("\"{number}\" is not a number of a {role}: write {role}-2"))?;
        Ok(Self::numbered(role, number))
    }
}

/// A number from 1, as it is shown.
fn from_one(text: &str) -> Option<u16> {
    text.parse().ok().filter(|_| !text.starts_with(['0', '+']))
}

/// Which members something is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Selector {
    /// This member alone.
    Member(MemberId),
    /// The server that leads the others at that moment.
    Leader,
    /// The server with this number, from 1, among those that do not lead at that moment.
    Replica(u16),
    /// Fewer than half of the servers, the leader among them.
    Minority,
    /// All servers of the store.
    All,
}

impl Selector {
    /// Those that are words.
    const WORDS: [(&'static str, Self); 3] =
        [("leader", Self::Leader), ("minority", Self::Minority), ("all", Self::All)];

    /// The role of the members that it selects.
    #[must_use]
    pub fn role(self) -> Role {
        match self {
            Self::Member(member) => member.role,
            Self::Leader | Self::Replica(_) | Self::Minority | Self::All => Role::Server,
        }
    }

    /// Those of the members that it selects, in their order, given the server that leads; a single server leads itself. None where
    /// nobody is known to lead, or no minority is left.
    #[must_use]
    pub fn of(self, members: &[MemberId], leader: Option<MemberId>) -> Vec<MemberId> {
        let servers = || members.iter().copied().filter(|member| member.role == Role::Server);
        match self {
            Self::Member(member) => members.iter().copied().filter(|other| *other == member).collect(),
            Self::All => servers().collect(),
            Self::Leader => servers().filter(|server| Some(*server) == leader).collect(),
            Self::Replica(number) => {
                let mut replicas = servers().filter(|server| Some(*server) != leader);
                replicas.nth(usize::from(number).saturating_sub(1)).into_iter().collect()
            }
            Self::Minority => {
                let most = servers().count().saturating_sub(1) / 2;
                let others = servers().filter(|server| Some(*server) != leader);
                let mut minority: Vec<MemberId> = leader.into_iter().chain(others).take(most).collect();
                minority.sort_unstable();
                minority
            }
        }
    }
}

impl From<Role> for Selector {
    fn from(role: Role) -> Self {
        Self::Member(role.into())
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(member) => write!(f, "{member}"),
            Self::Replica(number) => write!(f, "replica-{number}"),
            word => {
                f.write_str(Self::WORDS.iter().find(|(_, known)| known == word).map_or("", |(name, _)| name))
            }
        }
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, word)) = Self::WORDS.iter().find(|(name, _)| *name == text) {
            return Ok(*word);
        }
        // by other names
        if text == "primary" {
            return Ok(Self::Leader);
        }
        let replica = ["replica", "standby"].into_iter().find_map(|word| text.strip_prefix(word));
        if let Some(number) = replica.map(|number| number.strip_prefix('-').unwrap_or(number)) {
            return from_one(number)
                .map(Self::Replica)
                .ok_or_else(|| format!("\"{number}\" is not a number of a replica: write replica-1"));
        }
        // what a gateway stores in is the server of the store
        if text == "sink" {
            return Ok(Role::Server.into());
        }
        let member: Result<MemberId, String> = text.parse();
        member
            .map(Self::Member)
            .map_err(|why| format!("{why}, and sink for the server that a gateway stores in"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_they_are_written() {
        for text in ["server", "server-2", "locks", "leader", "replica-2", "minority", "all"] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
        for text in ["server-0", "server-01", "server-x", "server-", "-1", "router", "clients", "Leader"] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
        assert_eq!("sink".parse::<Selector>(), Ok(Role::Server.into()));
        assert_eq!("primary".parse::<Selector>(), Ok(Selector::Leader));
        for text in ["standby2", "standby-2", "replica2"] {
            assert_eq!(text.parse::<Selector>(), Ok(Selector::Replica(2)), "{text}");
        }
        for text in ["replica", "replica-0", "replica-01", "standbyx"] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }

    #[test]
    fn selectors_select() {
        let server = |number| MemberId::numbered(Role::Server, number);
        let five = [1, 2, 3, 4, 5].map(server);
        let members = [&five[..], &[Role::Locks.into()]].concat();
        let of = |selector: Selector, members: &[MemberId]| selector.of(members, Some(server(4)));
        assert_eq!(of(Selector::Leader, &members), [server(4)]);
        assert_eq!(of(Selector::Minority, &members), [server(1), server(4)]);
        assert_eq!(of(Selector::Replica(4), &members), [server(5)], "the fourth of those that do not lead");
        assert_eq!(of(Selector::Replica(5), &members), []);
        assert_eq!(of(Selector::All, &members), five);
        assert_eq!(of(Selector::Member(server(2)), &members), [server(2)]);
        assert_eq!(of(Selector::Member(server(6)), &members), []);
        assert_eq!(of(Role::Locks.into(), &members), [MemberId::from(Role::Locks)]);
        assert_eq!(Selector::Leader.of(&members, None), [], "nobody leads");
        // with one server nothing is left of it but all
        let one = [MemberId::from(Role::Server)];
        let of = |selector: Selector| selector.of(&one, Some(one[0]));
        assert_eq!([Selector::Leader, Selector::All, Role::Server.into()].map(of), [&one[..]; 3]);
        assert_eq!(of(Selector::Minority), []);
    }
}
