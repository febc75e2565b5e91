//! A browser without a window, driven over its pipe by the `DevTools` protocol: what is said there is JSON, each message ended
//! by a zero byte.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use acidtest_testbed::left_out;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::until;

/// Longest time for an answer, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_mins(1);

/// Looks for barriers.
const AXE: &str = include_str!("../../vendor/axe/axe.min.js");

/// What the browser answers where the page that was asked is left at that moment.
const PAGE_LEFT: [&str; 4] = [
    "Inspected target navigated or closed",
    "Execution context was destroyed.",
    "Cannot find context with specified id",
    "Cannot find default execution context",
];

/// A page in a browser of its own.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    /// What happened, as the browser told it.
    events: VecDeque<Value>,
    asked: u64,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// None if the user leaves out the tests that need it.
    pub(crate) fn start() -> Option<Self> {
        if left_out("chromium") {
            return None;
        }
        let profile = tempfile::Builder::new().prefix("acidtest-test-").tempdir().unwrap();
        // commands are read from descriptor 3, and answers written to 4
        let script = "exec chromium --headless=new --no-sandbox --disable-gpu --no-first-run --disable-sync \
                      --disable-background-networking --disable-component-update --disable-default-apps \
                      --disable-dev-shm-usage --remote-debugging-pipe --user-data-dir=\"$1\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(profile.path())
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, from) = channel();
        // it ends with the browser
        thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut message = Vec::new();
            while out.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                if tell.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let (events, session) = (VecDeque::new(), String::new());
        let mut browser = Self { child, to, from, events, asked: 0, session, _profile: profile };
        let page = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attached =
            browser.call("Target.attachToTarget", &json!({"targetId": page["targetId"], "flatten": true}));
        attached["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.ask(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// What the browser answers, or the error that it answers with.
    #[track_caller]
    fn ask(&mut self, method: &str, parameters: &Value) -> Result<Value, Value> {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = match self.from.recv_timeout(PATIENCE) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) => panic!("{method} has no answer"),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!(
                        "the browser ended: is chromium installed? ACIDTEST_TEST_WITHOUT=chromium leaves its tests out"
                    )
                }
            };
            if answer["id"] == self.asked {
                return match &answer["error"] {
                    Value::Null => Ok(answer["result"].clone()),
                    error => Err(error.clone()),
                };
            }
            self.events.push_back(answer);
        }
    }

    /// Opens a page, and waits until it is loaded.
    #[track_caller]
    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({"url": url}));
        self.until_loaded();
    }

    #[track_caller]
    pub(crate) fn reload(&mut self) {
        self.run("window.isOld = true");
        self.call("Page.reload", &json!({}));
        self.until("!window.isOld");
        self.until_loaded();
    }

    #[track_caller]
    pub(crate) fn until_loaded(&mut self) {
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// The value of an expression; a promise is waited for.
    #[track_caller]
    pub(crate) fn run(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", &asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true, also while pages change.
    #[track_caller]
    pub(crate) fn until(&mut self, expression: &str) {
        let asked = json!({"expression": format!("Boolean({expression})"), "returnByValue": true});
        until(expression, || match self.ask("Runtime.evaluate", &asked) {
            Ok(answer) => answer["result"]["value"] == true,
            // the page was left while it was asked: the next one is asked
            Err(error) if PAGE_LEFT.into_iter().any(|left| error["message"] == left) => false,
            Err(error) => panic!("{expression}: {error}"),
        });
    }

    /// The text that an element shows.
    #[track_caller]
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let found = self.run(&format!("document.querySelector({}).innerText", json!(selector)));
        found.as_str().unwrap_or_else(|| panic!("{selector} shows nothing")).to_owned()
    }

    #[track_caller]
    pub(crate) fn path(&mut self) -> String {
        self.run("location.pathname").as_str().unwrap().to_owned()
    }

    /// Presses a key, as `Tab`, `Enter`, ` ` or a letter.
    #[track_caller]
    pub(crate) fn press(&mut self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "ArrowDown" => 40,
            " " => 32,
            _ => 0,
        };
        let text = match key {
            "Enter" => "\r",
            key if key.len() == 1 => key,
            _ => "",
        };
        let mut down = json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code});
        if !text.is_empty() {
            down["text"] = text.into();
        }
        self.call("Input.dispatchKeyEvent", &down);
        let up = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", &up);
    }

    /// Presses the key of tabulators until the element is the one that has the focus.
    #[track_caller]
    pub(crate) fn tab_to(&mut self, selector: &str) {
        for _ in 0..200 {
            self.press("Tab");
            if self.run(&format!("document.activeElement.matches({})", json!(selector))) == true {
                return;
            }
        }
        panic!("{selector} cannot be reached by the keyboard");
    }

    /// Types a text into what has the focus.
    #[track_caller]
    pub(crate) fn write(&mut self, text: &str) {
        self.call("Input.insertText", &json!({"text": text}));
    }

    /// Makes the window so wide, and dark or light.
    #[track_caller]
    pub(crate) fn look(&mut self, width: u32, is_dark: bool) {
        let is_phone = width < 600;
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": is_phone});
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// Asserts that the page has no barriers, fits a phone and a desk, in the light and in the dark.
    #[track_caller]
    pub(crate) fn assert_open_to_all(&mut self, what: &str) {
        let barriers = self.barriers();
        assert!(barriers.is_empty(), "{what}:\n{}", barriers.join("\n"));
    }

    /// What keeps people from using the page.
    #[track_caller]
    pub(crate) fn barriers(&mut self) -> Vec<String> {
        let mut barriers = Vec::new();
        for (width, is_dark) in [(390, false), (1280, true)] {
            self.look(width, is_dark);
            // not against the window's width, which grows with the page on a phone; charts are drawn anew a moment later
            let wide = self.run(&format!(
                "new Promise((tell) => {{ const wide = () => document.documentElement.scrollWidth; let looked = 0; \
                 const look = () => (wide() <= {width} || (looked += 1) > 40 ? tell(wide()) : setTimeout(look, 50)); look(); }})"
            ));
            if wide.as_u64() > Some(width.into()) {
                barriers.push(format!("{wide:?} px wide at {width}"));
            }
            if self.run("typeof axe") == "undefined" {
                self.run(&format!("{AXE}; true"));
            }
            let found = self.run(
                "axe.run().then((found) => found.violations.map((each) => each.id + ': ' + each.nodes.map((node) => node.html \
                 + ' ' + node.failureSummary).join('\\n')))",
            );
            let found = found.as_array().unwrap().iter().filter_map(Value::as_str);
            barriers.extend(found.map(|barrier| format!("at {width} px {barrier}")));
        }
        self.look(1280, false);
        barriers
    }

    /// Asserts that the browser complained of nothing, and asked nobody but the server.
    #[track_caller]
    pub(crate) fn assert_content(&mut self, server: &str) {
        let complaints = self.complaints(server);
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }

    /// Errors and warnings of the pages that were open, and what they asked of others than the server.
    #[track_caller]
    pub(crate) fn complaints(&mut self, server: &str) -> Vec<String> {
        // whatever was said before the answer is read then
        self.run("1");
        let complaint = |event: &Value| match event["method"].as_str()? {
            "Runtime.exceptionThrown" => Some(event["params"]["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled"
                if ["error", "warning", "assert"].contains(&event["params"]["type"].as_str()?) =>
            {
                Some(event["params"]["args"].to_string())
            }
            "Log.entryAdded" if event["params"]["entry"]["level"] != "verbose" => {
                Some(event["params"]["entry"].to_string())
            }
            "Network.requestWillBeSent" => {
                let url = event["params"]["request"]["url"].as_str()?;
                let is_ours = url.starts_with(&format!("http://{server}/")) || url.starts_with("data:");
                (!is_ours).then(|| format!("asked {url}"))
            }
            _ => None,
        };
        self.events.iter().filter_map(complaint).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // its processes end with the first one
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
