//! Private servers that belong together: they are started, journaled, stopped and removed as one.

use std::path::Path;

use acidtest_model::{Address, Durability, MemberId, Role, Secret};

use crate::{
    Lifetime,
    error::LabError,
    folder::{Folder, Journal, MemberRecord, Root},
    installed, kinds,
    member::{GRACE, Member, SHORT_GRACE},
    port,
    size::ServerSize,
    user::User,
};

/// One private server to start as a member of a deployment.
#[derive(Clone, Copy, Debug)]
pub struct MemberSpec<'a> {
    /// Its role, with a number where others have the same one.
    pub id: MemberId,
    /// The store that its program serves.
    pub store: &'a str,
    /// The durability level that its settings must provide.
    pub durability: Durability,
    /// How many clients it must take, and how much data.
    pub size: ServerSize,
    /// The port on loopback; a free one if none is given.
    pub port: Option<u16>,
    /// The host and the port at which clients reach it, where that is not where it listens, as behind a proxy.
    pub advertised: Option<(&'a str, u16)>,
    /// acidtest's own program, for a host of an embedded store or a service in front of a store; none for a server.
    pub host: Option<&'a Path>,
    /// What such a service is told on its command line; it is journaled.
    pub arguments: &'a [String],
    /// Whether it is to speak TLS, and nothing else. Its certificates are made when it is, and gone with it.
    pub tls: bool,
    /// Whether it is a copy of another member, which it follows. It is started by [`Deployment::start_replica`], once
    /// that one answers.
    pub replicates: bool,
    /// Passwords for its environment, which are not.
    pub secrets: &'a [(&'static str, Secret)],
}

impl<'a> MemberSpec<'a> {
    /// A server of this store, on a free port.
    #[must_use]
    pub fn server(id: impl Into<MemberId>, store: &'a str, durability: Durability) -> Self {
        Self {
            id: id.into(),
            store,
            durability,
            size: ServerSize::default(),
            port: None,
            advertised: None,
            host: None,
            arguments: &[],
            tls: false,
            replicates: false,
            secrets: &[],
        }
    }
}

/// Private servers that were started together. When this value is dropped, they end and their folder is removed,
/// unless they are kept.
#[derive(Debug)]
pub struct Deployment {
    members: Vec<Member>,
    /// The replicas that are still to be started.
    to_come: Vec<Replica>,
    folder: Folder,
}

/// A replica that nobody has started yet.
#[derive(Debug)]
struct Replica {
    record: MemberRecord,
    user: Option<User>,
    secrets: Vec<(&'static str, Secret)>,
}

impl Deployment {
    /// Journals all members before it starts the first one of those that are no replicas.
    pub(crate) fn start(
        root: &Root,
        store: &str,
        specs: &[MemberSpec<'_>],
        lifetime: Lifetime,
    ) -> Result<Self, LabError> {
        let mut records: Vec<MemberRecord> = Vec::new();
        for spec in specs {
            let record = record(spec)?;
            if records.iter().any(|other| other.port == record.port) {
                return Err(LabError::PortTaken { port: record.port });
            }
            records.push(record);
        }
        let users = records.iter().map(|record| kinds::find_member(&record.store)?.user());
        let users = users.collect::<Result<Vec<_>, LabError>>()?;
        let user = users.iter().copied().flatten().next();
        let kept = lifetime == Lifetime::Kept;
        let folder = root.create(Journal::new(store, kept, records), user)?;
        // dropped if a member cannot be started: then those before it end, too
        let mut deployment = Self { members: Vec::new(), to_come: Vec::new(), folder };
        let place = deployment.folder.place.clone();
        for ((record, user), spec) in place.journal.members.iter().zip(users).zip(specs) {
            if record.replicates {
                let (record, secrets) = (record.clone(), spec.secrets.to_vec());
                deployment.to_come.push(Replica { record, user, secrets });
            } else {
                deployment.members.push(Member::start(&place, record, user, spec.secrets, None)?);
            }
        }
        if kept {
            deployment.folder.leave();
        }
        Ok(deployment)
    }

    /// Makes a replica a copy of the server that it reaches at `leader`, and starts it. Blocks until it is copied, which takes a
    /// second or more; it does not wait for the replica's first answer. The leader must have given its own. Here, too, the
    /// server may end with the thread that calls this: see [`Lab::deploy`](crate::Lab::deploy).
    ///
    /// # Errors
    /// The member is no replica or was started before; or it cannot be copied or started: nothing of it runs then, and it is not
    /// started later.
    pub fn start_replica(&mut self, id: impl Into<MemberId>, leader: &Address) -> Result<(), LabError> {
        let id = id.into();
        let place = self.to_come.iter().position(|replica| replica.record.id == id);
        let place = place.ok_or(LabError::NotToCome { member: id })?;
        let Replica { record, user, secrets } = self.to_come.remove(place);
        let member = Member::start(&self.folder.place, &record, user, &secrets, Some(leader))?;
        self.members.push(member);
        Ok(())
    }

    /// The folder in which those of all members are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder.place.path
    }

    /// The members, in the order in which they were started.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    #[must_use]
    pub fn member(&self, id: impl Into<MemberId>) -> Option<&Member> {
        let id = id.into();
        self.members.iter().find(|member| member.id() == id)
    }

    /// This member, to be killed, paused or started again.
    pub fn member_mut(&mut self, id: impl Into<MemberId>) -> Option<&mut Member> {
        let id = id.into();
        self.members.iter_mut().find(|member| member.id() == id)
    }

    /// Where clients reach the members with this role, in the order in which these were started.
    pub fn addresses(&self, role: Role) -> impl Iterator<Item = &Address> {
        self.members.iter().filter(move |member| member.id().role == role).map(Member::address)
    }

    /// An error with the last lines of its log if a member has ended: for a caller that waits for first answers.
    pub fn check(&mut self) -> Result<(), LabError> {
        self.members.iter_mut().try_for_each(Member::check)
    }

    /// Stops every member in order, or kills it where it does not stop, and removes the folder.
    ///
    /// # Errors
    /// The first failure; the other members are still stopped.
    pub fn stop(&mut self) -> Result<(), LabError> {
        let ended = self.members.iter_mut().map(|member| member.end(GRACE).map(|()| member.sweep()));
        ended.fold(Ok(()), Result::and)?;
        self.folder.remove()
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        if self.folder.is_left() {
            return;
        }
        // a destructor has nobody to report an error to; the folder is removed next, if no process is left in it
        for member in &mut self.members {
            if member.end(SHORT_GRACE).is_ok() {
                member.sweep();
            }
        }
    }
}

/// What is to be journaled of a member.
fn record(spec: &MemberSpec<'_>) -> Result<MemberRecord, LabError> {
    let kind = if spec.host.is_some() { kinds::find_member(spec.store)? } else { kinds::find(spec.store)? };
    let program = spec.host.map_or_else(|| installed::program(kind), |host| Ok(host.to_owned()))?;
    // never none here: a script that is not known to turn into the server is not taken for its program
    let binary = installed::process_of(kind, &program).unwrap_or_else(|| program.clone());
    let port = port::choose(spec.port)?;
    if let (true, Err(why)) = (spec.tls, kind.tls) {
        return Err(LabError::NoTls { why });
    }
    if spec.replicates {
        kind.copy_step()?;
    }
    let (id, store, durability) = (spec.id, spec.store.to_owned(), spec.durability);
    let arguments = spec.arguments.to_vec();
    Ok(MemberRecord {
        id,
        store,
        program,
        binary,
        port,
        durability,
        size: spec.size,
        arguments,
        tls: spec.tls,
        replicates: spec.replicates,
        advertised: spec.advertised.map(|(host, port)| (host.to_owned(), port)),
    })
}
