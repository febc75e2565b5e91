//! The process of a run: started with its assignment, read to its end, and asked to end.

use std::{
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use acidtest_protocol::{AsyncReader, AsyncWriter, Error};
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncReadExt, BufReader},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::{
    Event,
    event::{Ending, PROTOCOL},
};

/// Bytes of a line of its output that are read: an event has a row for each second that became complete.
const LINE: usize = 16 << 20;

/// Bytes of the end of what it says to people that are kept.
const SAID: usize = 2_000;

/// How long a process may take to be gone after its last word.
pub(crate) const ENDING: Duration = Duration::from_secs(30);

pub(crate) struct RunProcess {
    child: Child,
    /// Ends the process's input when it is dropped, and so the run.
    input: Option<oneshot::Sender<()>>,
    events: mpsc::Receiver<Event>,
    said: tokio::task::JoinHandle<String>,
}

impl RunProcess {
    /// Starts a process, and tells it what to do.
    pub(crate) fn start(command: std::process::Command, assignment: Box<RawValue>) -> io::Result<Self> {
        let mut command = Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // a Ctrl-C in a terminal is for the server, which asks the process to end
        command.process_group(0);
        let mut child = command.spawn()?;
        let missing = || io::Error::other("a process without its streams");
        let (input, ends) = oneshot::channel();
        tokio::spawn(feed(child.stdin.take().ok_or_else(missing)?, assignment, ends));
        let (tell, events) = mpsc::channel(64);
        tokio::spawn(read(child.stdout.take().ok_or_else(missing)?, tell));
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
async fn feed(input: ChildStdin, assignment: Box<RawValue>, ends: oneshot::Receiver<()>) {
    let mut input = AsyncWriter::new(input);
    // a process that has ended already says so by its end
    if input.greet(PROTOCOL).await.is_ok() {
        let _ = input.send(&assignment).await;
    }
    let _ = ends.await;
}

/// Reads events until the stream ends. A line that is no event is left out. A process of another version has failed.
async fn read(from: ChildStdout, tell: mpsc::Sender<Event>) {
    let mut from = AsyncReader::new(BufReader::new(from)).at_most(LINE);
    if let Err(error) = from.expect_greeting(PROTOCOL).await {
        // one that ended before it greeted is told from its end
        if error.is_mismatch() {
            let error = Some(format!("the process that was to make it {error}"));
            // at the end of the server nobody asks what becomes of it
            let _ = tell.send(Event::Ended { how: Ending::Failed, exit_status: 1, error }).await;
        }
        return;
    }
    loop {
        match from.receive().await {
            Ok(Some(event)) => {
                if tell.send(event).await.is_err() {
                    return;
                }
            }
            Err(Error::NoMessage(_) | Error::TooLong(_)) => {}
            Ok(None) | Err(_) => return,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a process tells that this script is, after it has read its greeting and its assignment.
    async fn told(script: &str) -> Vec<Event> {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &format!("read greeting; read assignment; {script}")]);
        let mut process =
            RunProcess::start(command, RawValue::from_string("{}".to_owned()).unwrap()).unwrap();
        let mut events = Vec::new();
        while let Some(event) = process.next().await {
            events.push(event);
        }
        process.end(false).await;
        events
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn a_process_of_another_version_has_failed() {
        let events = block_on(told(
            r#"echo '{"protocol":"run","version":99}'; echo '{"event":"note","said":"unheard"}'"#,
        ));
        let [Event::Ended { how: Ending::Failed, exit_status: 1, error: Some(said) }] = &events[..] else {
            panic!("{events:?}");
        };
        let expected = "the process that was to make it speaks version 99 of the run protocol, and this acidtest version 1 of \
                        the run protocol: use the same version of acidtest for both";
        assert_eq!(said, expected);
    }

    #[test]
    fn events_are_heard_after_the_greeting_and_other_lines_are_left_out() {
        let script = r#"
            [ "$greeting" = '{"protocol":"run","version":1}' ] && [ "$assignment" = '{}' ] && echo "$greeting"
            echo nonsense
            echo '{"event":"note","said":"heard"}'"#;
        assert_eq!(block_on(told(script)), [Event::Note { said: "heard".to_owned() }]);
        assert!(block_on(told("exit 3")).is_empty(), "its end tells why");
    }
}
