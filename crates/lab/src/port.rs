//! Chooses a loopback port that nobody uses.

use std::{fs, io, net::TcpListener};

use crate::{error::LabError, folder::random};

/// Below the ports that the kernel gives to outgoing connections: a client that tries again and again
/// to reach a killed server on one of those may be given that very port and connect to itself.
/// No well-known server's port lies in here.
const OURS: std::ops::Range<u16> = 21_000..24_000;

/// The port asked for, or a free one.
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

/// A free port besides those that are spoken for.
pub(crate) fn another(spoken_for: &[u16]) -> Result<u16, LabError> {
    loop {
        let port = choose(None)?;
        if !spoken_for.contains(&port) {
            return Ok(port);
        }
    }
}

fn below_ephemeral() -> Option<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let lowest: u16 = range.split_whitespace().next()?.parse().ok()?;
    let span = u64::from(OURS.end - OURS.start);
    let candidate = || u16::try_from(random() % span).map_or(OURS.start, |offset| OURS.start + offset);
    (lowest >= OURS.end).then(|| (0..100).find_map(|_| free(candidate()).ok())).flatten()
}

fn free(port: u16) -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", port))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_refused_by_name() {
        let held = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = held.local_addr().unwrap().port();
        let text = choose(Some(port)).unwrap_err().to_string();
        assert!(text.starts_with(&format!("port {port} is taken on 127.0.0.1; choose another")), "{text}");
    }

    #[test]
    fn a_chosen_port_is_free() {
        assert!(free(choose(None).unwrap()).is_ok());
    }
}
