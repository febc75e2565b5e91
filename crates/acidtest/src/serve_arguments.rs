//! The arguments of the server of runs.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use crate::{certificate_arguments::ListenCertificate, output, run_arguments::QuietOption};

const EXAMPLES: &str = "\
Examples:
  acidtest serve
      on this machine only: open http://127.0.0.1:1730 in a browser; the API for scripts is at
      http://127.0.0.1:1730/api/openapi.json
  curl --json '{\"workload\":\"inventory\",\"trials\":3}' http://127.0.0.1:1730/api/runs
      run a plan; the answer has the path of the run
  ACIDTEST_PASSWORD=... acidtest serve --allow-store postgres://ann@db.example/shop
      plans may name that server, without its password
  openssl rand -hex 32 > token && chmod 600 token
  acidtest serve --listen 192.0.2.7:1730 --token-file token
      for others, too: a browser asks for the token, requests send Authorization: Bearer TOKEN
  acidtest serve --listen 192.0.2.7:1730 --token-file token --tls-cert server.pem \\
      --tls-key server.key
      the same with TLS, so that nobody in between reads it";

/// Starts, watches, stops and compares runs, in a browser and over HTTP.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// Where to listen; anywhere but on loopback, --token-file is required
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:1730", value_parser = address)]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) certificate: ListenCertificate,
    /// A file with the token that every request must have: at least 16 letters, digits and signs
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A name of this machine that requests may use, besides localhost and its addresses; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// An address that plans may name as a store or lock service, without its password; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) allow_store: Vec<String>,
    /// The folder of results, and of the state of runs
    #[arg(long, value_name = "FOLDER", default_value = output::RESULTS)]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) quiet_machine: QuietOption,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an address and a port, as in 127.0.0.1:1730 or [::1]:1730".to_owned())
}
