//! The process of a run: started with its assignment, read to its end, and asked to end.

use std::{
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::Event;

/// Bytes of a line of its output that are read: an event has a row for each second that became complete.
const LINE: u64 = 16 << 20;

/// Bytes of the end of what it says to people that are kept.
const SAID: usize = 2_000;

/// How long a process may take to be gone after its last word.
pub(crate) const ENDING: Duration = Duration::from_secs(30);

/// The process of a run.
pub(crate) struct RunProcess {
    child: Child,
    /// Ends the process's input when it is dropped, and so the run.
    input: Option<oneshot::Sender<()>>,
    events: mpsc::Receiver<Event>,
    said: tokio::task::JoinHandle<String>,
}

impl RunProcess {
    /// Starts a process, and tells it what to do.
    pub(crate) fn start(command: std::process::Command, assignment: &str) -> io::Result<Self> {
        let mut command = Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // a Ctrl-C in a terminal is for the server, which asks the process to end
        command.process_group(0);
        let mut child = command.spawn()?;
        let missing = || io::Error::other("a process without its streams");
        let (input, ends) = oneshot::channel();
        tokio::spawn(feed(child.stdin.take().ok_or_else(missing)?, format!("{assignment}\n"), ends));
        let (tell, events) = mpsc::channel(64);
        tokio::spawn(read(BufReader::new(child.stdout.take().ok_or_else(missing)?), tell));
        let said = tokio::spawn(last_words(child.stderr.take().ok_or_else(missing)?));
        Ok(Self { child, input: Some(input), events, said })
    }

    /// What happens next; none when the process says nothing more.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Asks it to end tidily, as Ctrl-C would.
    pub(crate) fn stop(&mut self) {
        self.input = None;
    }

    /// Its end, and the last of what it said to people. One that does not end is killed, at once if it `is_late`.
    pub(crate) async fn end(mut self, is_late: bool) -> (Option<ExitStatus>, String) {
        self.input = None;
        let patience = if is_late { Duration::ZERO } else { ENDING };
        let ended = timeout(patience, self.child.wait()).await;
        if ended.is_err() {
            let _ = self.child.kill().await;
        }
        let status = ended.ok().and_then(Result::ok);
        // what it has started may hold the stream open
        let said = timeout(Duration::from_secs(1), self.said).await;
        (status, said.ok().and_then(Result::ok).unwrap_or_default())
    }
}

/// Writes the assignment, and leaves the input open until it is to end.
async fn feed(mut input: ChildStdin, assignment: String, ends: oneshot::Receiver<()>) {
    // a process that has ended already says so by its end
    let _ = input.write_all(assignment.as_bytes()).await;
    let _ = ends.await;
}

/// Reads events until the stream ends. A line that is no event is left out.
async fn read(mut from: BufReader<ChildStdout>, tell: mpsc::Sender<Event>) {
    loop {
        let mut line = Vec::new();
        let read = (&mut from).take(LINE).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(length) if length > 0) {
            return;
        }
        if let Ok(event) = serde_json::from_slice(&line)
            && tell.send(event).await.is_err()
        {
            return;
        }
    }
}

/// The end of what is said on a stream.
async fn last_words(mut stream: ChildStderr) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(length) = stream.read(&mut buffer).await {
        if length == 0 {
            break;
        }
        kept.extend_from_slice(&buffer[..length]);
        let surplus = kept.len().saturating_sub(SAID);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}
