//! Chooses a loopback port that nobody uses and that no other lab is about to use.

use std::{
    fs, io,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    sync::{Mutex, PoisonError},
};

use crate::{error::LabError, folder::random};

/// Below the ports that the kernel gives to outgoing connections: a client that tries again and again
/// to reach a killed server on one of those may be given that very port and connect to itself.
/// No well-known server's port lies in here.
const OURS: std::ops::Range<u16> = 21_000..24_000;

/// The ports that this process has reserved, by their sockets. A port stays reserved also while its server is not up:
/// before it has started, and between a kill and the next start. The kernel frees all of them when the process ends.
static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A free loopback port that no other lab is about to use, and that is this process's as long as it lives: for a server that the
/// lab does not start itself.
///
/// # Errors
/// No port is free.
pub fn free_port() -> Result<u16, LabError> {
    choose(None)
}

/// The port asked for, or a free one that no other lab has reserved.
pub(crate) fn choose(asked: Option<u16>) -> Result<u16, LabError> {
    match asked.filter(|port| *port != 0) {
        Some(port) => free(port).map_err(|cause| match cause.kind() {
            io::ErrorKind::AddrInUse => LabError::PortTaken { port },
            _ => LabError::PortRefused { port, cause },
        }),
        None => below_ephemeral()
            .map_or_else(|| free(0), Ok)
            .map_err(|cause| LabError::PortRefused { port: 0, cause }),
    }
}

fn below_ephemeral() -> Option<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let lowest: u16 = range.split_whitespace().next()?.parse().ok()?;
    let span = u64::from(OURS.end - OURS.start);
    let candidate = || u16::try_from(random() % span).map_or(OURS.start, |offset| OURS.start + offset);
    (lowest >= OURS.end)
        .then(|| (0..100).map(|_| candidate()).find(|port| free(*port).is_ok() && reserve(*port).is_ok()))
        .flatten()
}

fn free(port: u16) -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", port))?.local_addr()?.port())
}

/// Reserves the port among all labs of the machine, by the name of a socket that only one process can have.
fn reserve(port: u16) -> io::Result<()> {
    let name = SocketAddr::from_abstract_name(format!("acidtest-lab-port-{port}"))?;
    let reserved = UnixListener::bind_addr(&name)?;
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(reserved);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_taken_port_is_refused_by_name() {
        let held = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = held.local_addr().unwrap().port();
        let text = choose(Some(port)).unwrap_err().to_string();
        assert!(text.starts_with(&format!("port {port} is taken on 127.0.0.1; choose another")), "{text}");
    }

    #[test]
    fn a_chosen_port_is_free_and_given_to_nobody_else() {
        let chosen: BTreeSet<u16> = (0..200).map(|_| choose(None).unwrap()).collect();
        assert_eq!(chosen.len(), 200);
        for port in chosen.into_iter().filter(|port| OURS.contains(port)) {
            assert!(free(port).is_ok());
            assert_eq!(reserve(port).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
    }
}
