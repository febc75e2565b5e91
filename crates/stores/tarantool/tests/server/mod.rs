//! A private Tarantool for a test or an example.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The server picks its own port and writes it to a file when all is set up. It ends with its standard
/// input, so that it outlives its parent in no case.
const APP: &str = r"
local dir = arg[1]
box.cfg{ listen='127.0.0.1:0', work_dir=dir, memtx_dir=dir, wal_dir=dir, vinyl_dir=dir, log=dir..'/log',
  memtx_memory=64*1024*1024, memtx_max_tuple_size=4*1024*1024, checkpoint_interval=0, wal_mode='write' }
box.schema.user.grant('guest', 'read,write,execute,create,drop,alter', 'universe')
box.schema.user.create('bench', {password='secret'})
box.schema.user.grant('bench', 'read,write,execute', 'universe')
box.schema.space.create('kv', {id=600, format={{'id','unsigned'},{'v','string'}}})
box.space.kv:create_index('pk', {parts={{1,'unsigned'}}})
function echo(...) return ... end
function pushes(n) for i = 1, n do box.session.push(i) end return 'done' end
require('fiber').create(function() require('socket').iowait(0, 'R') os.exit(0) end)
local ready = require('fio').open(dir..'/ready.new', {'O_CREAT','O_WRONLY'}, 420)
ready:write(box.info.listen) ready:close()
require('fio').rename(dir..'/ready.new', dir..'/ready')
";

/// A running server; killed, and its files removed, when dropped.
pub(crate) struct Server {
    child: Child,
    dir: TempDir,
    endpoint: String,
}

impl Server {
    /// Starts one; none if Tarantool is not installed.
    pub(crate) fn start() -> io::Result<Option<Self>> {
        let dir = tempfile::tempdir()?;
        let app = dir.path().join("app.lua");
        std::fs::write(&app, APP)?;
        let spawned = Command::new("tarantool")
            .arg(&app)
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = match spawned {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut server = Self { child, dir, endpoint: String::new() };
        server.endpoint = server.wait_ready()?;
        Ok(Some(server))
    }

    fn wait_ready(&mut self) -> io::Result<String> {
        let deadline = Instant::now() + Duration::from_secs(30);
        let dir: &Path = self.dir.path();
        loop {
            if let Ok(endpoint) = std::fs::read_to_string(dir.join("ready")) {
                return Ok(endpoint);
            }
            if self.child.try_wait()?.is_some() || Instant::now() > deadline {
                let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("tarantool did not start: {log}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its `host:port`.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Kills it with signal 9, and waits for its end.
    pub(crate) fn kill(&mut self) {
        // only fails if it is gone already
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
