//! A server for a test, in a folder and a lab of its own.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, Command, Stdio},
    sync::{
        Mutex,
        mpsc::{Receiver, channel},
    },
    thread,
};

use serde_json::{Value, json};

use crate::common::{
    Bench, CommandResult,
    http::{Answer, Http},
    signal, until, wait,
};

pub(crate) struct Server {
    child: Option<Child>,
    pub(crate) address: String,
    /// What it says to people, when it has ended.
    said: Mutex<Receiver<String>>,
}

impl Server {
    pub(crate) fn start(bench: &Bench, words: &[&str]) -> Self {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
        all.extend_from_slice(words);
        Self::of(bench.command(&all))
    }

    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address =
            line.strip_prefix("listening on ").and_then(|url| url.split_once("://")?.1.split(';').next());
        let Some(address) = address.map(str::to_owned) else {
            child.kill().unwrap();
            panic!("it did not start: {line}{}", rest(stderr));
        };
        let (tell, said) = channel();
        // it ends with the server
        thread::spawn(move || tell.send(line + &rest(stderr)));
        Self { child: Some(child), address, said: Mutex::new(said) }
    }

    pub(crate) fn http(&self) -> Http {
        Http::open(&self.address).unwrap()
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.http().get(path, "").unwrap()
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.http().send("POST", path, &body.to_string()).unwrap()
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.http().send("DELETE", path, "").unwrap()
    }

    /// Has a plan run; returns the run's path.
    #[track_caller]
    pub(crate) fn run(&self, plan: &Value) -> String {
        self.post("/api/runs", plan).expect(202).json()["links"]["run"].as_str().unwrap().to_owned()
    }

    pub(crate) fn state(&self, run: &str) -> String {
        self.get(run).expect(200).json()["state"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub(crate) fn until_state(&self, run: &str, state: &str) {
        until(&format!("{run} is {state}"), || {
            let about = self.get(run).expect(200).json();
            let (is, error) = (about["state"].as_str().unwrap(), &about["error"]);
            assert!(
                is == state || !["done", "failed", "cut_off", "stopped"].contains(&is),
                "{run} is {is}: {error}"
            );
            is == state
        });
    }

    /// The events of a run, to be read a line at a time.
    #[track_caller]
    pub(crate) fn watch(&self, run: &str) -> Http {
        let mut http = self.http();
        http.get(&format!("{run}/events"), "").unwrap().expect(200);
        http
    }

    /// The events of a run to its end.
    #[track_caller]
    pub(crate) fn events(&self, run: &str) -> Vec<Value> {
        let mut http = self.watch(run);
        let mut events = Vec::new();
        loop {
            let line = http.line().unwrap();
            if let Some(data) = line.strip_prefix("data: ") {
                events.push(serde_json::from_str(data).unwrap());
            }
            // the last chunk
            if line == "0\r\n" || line.is_empty() {
                return events;
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Ends it by a signal, and returns its exit code and what it said.
    pub(crate) fn end(mut self, name: &str) -> CommandResult {
        let child = self.child.take().unwrap();
        signal(name, child.id());
        let mut ended = wait(child);
        ended.stderr = self.said.lock().unwrap().recv().unwrap();
        ended
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn rest(mut stderr: BufReader<ChildStderr>) -> String {
    let mut text = String::new();
    let _ = stderr.read_to_string(&mut text);
    text
}

/// A plan of so many milliseconds on SQLite.
pub(crate) fn plan(milliseconds: u32) -> Value {
    json!({
        "workload": "inventory", "stores": ["sqlite"], "durability": ["none"], "clients": [2],
        "duration": format!("{milliseconds}ms"), "warmup": "0s"
    })
}
