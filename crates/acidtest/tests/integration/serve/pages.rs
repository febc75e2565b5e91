//! The pages, in a browser without a window.

use std::fs;

use serde_json::{Value, json};

use super::{
    browser::Browser,
    server::{Server, plan},
};
use crate::common::{Bench, http::Answer, until};

fn url(server: &Server, path: &str) -> String {
    format!("http://{}{path}", server.address)
}

/// From the form to a verdict, by the keyboard alone.
#[test]
fn a_run_is_chosen_started_and_watched_by_the_keyboard() {
    let Some(mut page) = Browser::start() else { return };
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    page.open(&url(&server, "/"));
    page.assert_open_to_all("the form");
    // what cannot be combined is off, with the reason
    page.tab_to("#store-memory");
    page.press(" ");
    page.until("document.querySelector('#summary').innerText.includes('--store sqlite,memory')");
    page.run("document.querySelector('#content').focus(), true");
    page.tab_to("#store-sqlite");
    page.press(" ");
    page.until("document.querySelector('#durability-disk').disabled");
    assert!(page.run("document.querySelector('#durability-none').checked") == true);
    let why = page.text("#axis-durability .reasons");
    assert!(why.contains("disk") && why.contains("nothing is kept on disk"), "{why}");
    assert!(page.run("document.activeElement.id") == "store-sqlite", "the focus stays where it is");
    page.press(" ");
    page.until("!document.querySelector('#durability-disk').disabled");
    page.tab_to("#store-memory");
    page.press(" ");
    page.until("!document.querySelector('#summary .command').innerText.includes('memory')");
    // the address holds what is chosen
    page.until("location.search.includes('store=sqlite') && !location.search.includes('store=memory')");
    page.reload();
    assert!(page.run("document.querySelector('#durability-none').checked") == true);
    // two lock modes, so that there is a price
    page.run("document.querySelector('#content').focus(), true");
    page.tab_to("#lock-none");
    page.press(" ");
    page.until("document.querySelector('#summary').innerText.includes('--lock none,native')");
    for (field, text) in [("clients", "2"), ("trials", "2"), ("duration", "1500ms"), ("warmup", "0s")] {
        page.tab_to(&format!("#{field}"));
        page.write(text);
    }
    page.until("document.querySelector('#summary').innerText.includes('driven for 6 s')");
    let command = page.text("#summary pre");
    assert_eq!(
        command,
        "acidtest run inventory --lock none,native --durability none --clients 2 --trials 2 --duration '1s 500ms' --warmup 0s"
    );
    page.tab_to("button[type=submit]");
    page.press("Enter");
    page.until("location.pathname.startsWith('/runs/2')");
    page.until_loaded();
    let path = page.path();
    page.until("document.querySelector('#f-rate').innerText !== '–'");
    page.until("document.querySelector('#c-rate canvas') && document.querySelector('#c-times canvas') && document.querySelector('#c-cores canvas')");
    page.assert_open_to_all("a run that is made");
    // in the middle of it the page is loaded again
    page.reload();
    page.until("document.querySelector('#c-rate canvas')");
    // while nobody sees it, it holds no connection; whoever comes back is told all again
    page.run("Object.defineProperty(document, 'hidden', { value: true, configurable: true }), document.dispatchEvent(new Event('visibilitychange')), true");
    until("nobody reads the events", || {
        server.get("/metrics").body.contains("acidtest_serve_event_streams 0")
    });
    page.run("delete document.hidden, document.dispatchEvent(new Event('visibilitychange')), true");
    page.until("document.querySelector('#state').innerText === 'done'");
    page.until("document.querySelector('#findings').innerText.includes('holds')");
    page.until("document.querySelector('#doing').innerText === 'It has ended.'");
    let findings = page.text("#findings");
    assert!(findings.contains("native") && findings.contains("Prices of guarantees"), "{findings}");
    assert!(page.run("document.querySelector('#f-verdict').innerText.length > 1") == true);
    page.assert_open_to_all("a run that is done");
    // the result is the file that the command line would have written
    let id = path.rsplit('/').next().unwrap();
    let result: Value = serde_json::from_str(
        &fs::read_to_string(bench.path(&format!("results/{id}-inventory.json"))).unwrap(),
    )
    .unwrap();
    assert_eq!(
        (&result["plan"]["locks"], &result["plan"]["trials"]),
        (&json!(["none", "native"]), &json!(2))
    );
    let ready = bench.run(&["show", &format!("results/{id}-inventory.json")]);
    assert!(ready.code.is_some_and(|code| [0, 4].contains(&code)), "{}", ready.stderr);
    // its cells compared, and its report
    page.open(&url(&server, &format!("/compare?run={id}")));
    for (side, steps) in [("a", 1), ("b", 2)] {
        page.tab_to(&format!("#{side}_cells"));
        (0..steps).for_each(|_| page.press("ArrowDown"));
    }
    page.tab_to("button");
    page.press("Enter");
    page.until("location.search.includes('b_cells=lock%3Dnative')");
    page.until_loaded();
    assert!(page.text("#content").contains("B / A"));
    page.assert_open_to_all("a comparison");
    page.assert_content(&server.address);
    page.open(&url(&server, &format!("/api/runs/{id}/report.html")));
    page.until("document.querySelector('canvas')");
    page.assert_open_to_all("a report");
    server.end("TERM").expect(0);
    bench.assert_clean();
}

/// What the other tests look for is found where it is.
#[test]
fn a_page_with_barriers_and_errors_is_caught() {
    let Some(mut page) = Browser::start() else { return };
    page.open("data:text/html,<meta name='viewport' content='width=device-width'><title>x</title><img src='data:,'><div style='width:600px;height:1px'></div><script>console.error('planted')</script>");
    let barriers = page.barriers().join("\n");
    for barrier in ["html-has-lang", "image-alt", "px wide at 390"] {
        assert!(barriers.contains(barrier), "{barrier}: {barriers}");
    }
    page.run("setTimeout(() => { throw new Error('planted too') }), fetch('http://127.0.0.1:1/').catch(() => 0), true");
    until("all is told", || {
        let said = page.complaints("127.0.0.1:2").join("\n");
        ["planted", "planted too", "asked http://127.0.0.1:1/"].iter().all(|each| said.contains(each))
    });
}

/// The page of a run leads to the form that describes it: the same plan follows from it.
#[test]
fn a_run_is_changed_and_run_again() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    for (plan, is_on_form) in [
        (
            json!({"workload": "inventory", "durability": ["none"], "clients": [1, 4], "locks": ["none", "native"], "trials": 2,
                "duration": "1m 30s", "warmup": "0s", "rates": [250.5, 3000.0], "parameters": {"items": [10, 20], "skew": "zipf:0.9"}}),
            true,
        ),
        (
            json!({"workload": "records", "stores": ["sqlite", "memory"], "durability": ["none"],
                "parameters": {"mix": "read:95+update:5", "isolation": ["default", "serializable"]}}),
            true,
        ),
        (json!({"workload": "inventory", "capacity": {"slo": ["p99<50ms", "errors<0.1%"]}}), true),
        (json!({"workload": "inventory", "seed": 7}), false),
        (json!({"workload": "inventory", "ops": 1000}), false),
    ] {
        let run = server.run(&plan);
        server.delete(&run);
        until("it has ended", || server.state(&run) == "stopped");
        let about = server.get(&run).json();
        let page = server.get(&run.replace("/api", "")).expect(200).body;
        let link =
            page.split("href=\"/?").nth(1).map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&"));
        assert_eq!(link.is_some(), is_on_form, "{plan}");
        if let Some(query) = link {
            let form = server.get(&format!("/?{query}")).expect(200).body;
            assert!(!form.contains("Not chosen"), "{query}: {form}");
            let command = about["command"].as_str().unwrap().replace('<', "&lt;");
            assert!(form.contains(&format!(">{command}<")), "{query}: {command} {form}");
        }
    }
}

/// Past runs, those of the command line among them, and two of them compared.
#[test]
fn past_runs_are_listed_and_compared() {
    let Some(mut page) = Browser::start() else { return };
    let bench = Bench::new();
    bench
        .run(&[
            "run",
            "inventory",
            "--store",
            "sqlite",
            "--durability",
            "none",
            "--clients",
            "2",
            "--duration",
            "300ms",
            "--warmup",
            "0s",
            "--quiet",
        ])
        .expect(0);
    let server = Server::start(&bench, &[]);
    page.open(&url(&server, "/runs"));
    assert!(page.text("#content").contains("Results of the command line"));
    let run = server.run(&plan(300));
    server.until_state(&run, "done");
    page.open(&url(&server, "/runs"));
    page.assert_open_to_all("the list of runs");
    page.run("document.querySelectorAll('input[name=run]').forEach((box) => box.click()), document.querySelector('button[type=submit]').click(), true");
    page.until("location.pathname === '/compare'");
    page.until_loaded();
    let compared = page.text("#content");
    assert!(compared.contains("B / A") && compared.contains("two runs"), "{compared}");
    page.assert_open_to_all("a comparison of two runs");
    // a result of the command line has a page as others have
    let other = server.get("/api/runs").expect(200).json()["others"][0]["id"].as_str().unwrap().to_owned();
    page.open(&url(&server, &format!("/runs/{other}")));
    assert!(page.text("#content").contains("The cell holds."));
    page.assert_open_to_all("a result of the command line");
    page.assert_content(&server.address);
    let one = server.get(&format!("/compare?run={other}")).expect(200);
    assert!(one.body.contains("Choose a cell for A"));
    server.get("/compare").expect(422);
    server.get("/compare?run=a&run=b&run=c").expect(422);
    server.get("/runs/20260101T000000Z-1").expect(404);
    // a file that is no result is said to be none
    fs::write(bench.path("results/20260101T000000Z-1-inventory.json"), "{}").unwrap();
    server.get("/runs/20260101T000000Z-1").expect(500);
    assert!(server.get("/api/runs/20260101T000000Z-1").expect(500).json()["detail"].is_string());
}

/// A store that fails says so on the page; a run is stopped from it, and goes on.
#[test]
fn a_failing_store_and_a_stopped_run_are_seen() {
    let Some(mut page) = Browser::start() else { return };
    let bench = Bench::new();
    let server = Server::start(&bench, &["--allow-store", "redis://127.0.0.1:1"]);
    page.open(&url(&server, "/?store=redis%3A%2F%2F127.0.0.1%3A1&duration=1s"));
    assert!(page.text("#axis-store").contains("your own Redis"));
    page.run("document.querySelector('button[type=submit]').click(), true");
    page.until("location.pathname.startsWith('/runs/')");
    page.until("document.querySelector('#state')?.innerText === 'failed'");
    let said = page.text("#about .bad");
    assert!(said.contains("127.0.0.1:1"), "{said}");
    page.assert_open_to_all("a run that failed");
    page.open(&url(&server, "/?duration=10m&durability=none&clients=2&warmup=0s"));
    page.run("document.querySelector('button[type=submit]').click(), true");
    page.until("location.pathname.startsWith('/runs/')");
    page.until("document.querySelector('#c-rate canvas')");
    page.run("document.querySelector('button.danger').click(), true");
    page.until("document.querySelector('#state')?.innerText === 'stopped'");
    page.until("document.querySelector('#findings').innerText.includes('holds')");
    assert!(page.text("#about").contains("Resume"));
    // two more, so that one waits
    let path = page.path();
    page.run(
        "[...document.querySelectorAll('button')].find((each) => each.innerText === 'Resume').click(), true",
    );
    page.until("['running', 'waiting'].includes(document.querySelector('#state')?.innerText)");
    let waits = server.run(&plan(200));
    page.open(&url(&server, &waits.replace("/api", "")));
    assert!(page.text("#about").contains("1 run is ahead of it"));
    server.delete(&format!("/api{path}"));
    page.until("document.querySelector('#state')?.innerText === 'done'");
    page.assert_content(&server.address);
    server.end("TERM").expect(0);
    bench.assert_clean();
}

/// A page that is open while its server is killed and started again says what became of the run.
#[test]
fn a_page_outlives_its_server() {
    let Some(mut page) = Browser::start() else { return };
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let run = server.run(&plan(60_000));
    server.until_state(&run, "running");
    page.open(&url(&server, &run.replace("/api", "")));
    page.until("document.querySelector('#c-rate canvas')");
    let address = server.address.clone();
    server.end("KILL");
    bench.assert_clean();
    page.until("document.querySelector('#passing').innerText.includes('not heard')");
    let server = Server::of(bench.command(&["serve", "--listen", &address]));
    page.until("document.querySelector('#state').innerText === 'cut off'");
    page.until("document.querySelector('#doing').innerText === 'It has ended.'");
    assert!(page.text("#about").contains("the server ended during the run"));
    // the form says so when nobody answers
    page.open(&url(&server, "/"));
    server.end("TERM").expect(0);
    page.tab_to("#lock-none");
    page.press(" ");
    page.until("document.querySelector('#summary').innerText.includes('The server does not answer.')");
}

/// A result that the command line has not finished yet is shown as far as it has come, and as nothing else.
#[test]
fn a_run_of_the_command_line_is_seen_while_it_is_made() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let words = [
        "run",
        "inventory",
        "--store",
        "sqlite",
        "--lock",
        "none,native",
        "--durability",
        "none",
        "--clients",
        "2",
        "--duration",
        "1s",
        "--warmup",
        "0s",
        "--trials",
        "60",
        "--quiet",
    ];
    let mut made = bench.spawn(&words);
    let first = || server.get("/api/runs").json()["others"][0]["id"].as_str().map(str::to_owned);
    until("a trial is written", || first().is_some());
    let id = first().unwrap();
    let about = server.get(&format!("/api/runs/{id}")).expect(200).json();
    assert_eq!(
        (&about["ended"], &about["exit_status"], &about["verdict"]),
        (&json!(null), &json!(null), &json!(null))
    );
    let shown = server.get(&format!("/runs/{id}")).expect(200).body;
    assert!(shown.contains("it is still running on the command line, or it was interrupted"), "{shown}");
    assert!(!shown.contains("Not run") && !shown.contains("nterrupted: cells"), "{shown}");
    let run = format!("/api/runs/{id}");
    for answer in [server.delete(&run), server.post(&format!("{run}/resume"), &json!({}))] {
        let refused = answer.expect(409).json();
        assert!(
            refused["detail"].as_str().unwrap().contains("it was started on the command line"),
            "{refused}"
        );
    }
    made.kill().unwrap();
    made.wait().unwrap();
    bench.run(&["lab", "down"]).expect(0);
}

/// With a token: the page asks for it, and the browser keeps what follows from it.
#[test]
fn the_token_is_asked_for_once() {
    let Some(mut page) = Browser::start() else { return };
    let bench = Bench::new();
    let token = "0123456789abcdef0123456789abcdef";
    fs::write(bench.path("token"), token).unwrap();
    let server = Server::start(&bench, &["--token-file", "token"]);
    page.open(&url(&server, "/runs"));
    assert_eq!(page.path(), "/login");
    page.assert_open_to_all("the page that asks for the token");
    for (text, path) in [("not the token at all", "/login"), (token, "/runs")] {
        page.tab_to("#token");
        page.write(text);
        page.run("window.isOld = true");
        page.press("Enter");
        page.until("!window.isOld");
        page.until_loaded();
        assert_eq!(page.path(), path);
    }
    let cookie = page.run("document.cookie");
    assert_eq!(cookie, "", "no script reads it");
    // its events need it, too
    page.open(&url(&server, "/?duration=2s&durability=none&clients=2&warmup=0s"));
    page.run("document.querySelector('button[type=submit]').click(), true");
    page.until("location.pathname.startsWith('/runs/')");
    page.until("document.querySelector('#c-rate canvas')");
    page.until("document.querySelector('#state')?.innerText === 'done'");
    // of other requests none is answered without it
    server.get("/api/runs").expect(401);
    let moved = server.get("/runs").expect(303);
    assert!(moved.head.contains("location: /login"), "{}", moved.head);
    for cookie in ["acidtest=", "acidtest=0", &format!("acidtest={token}"), "other=1", "name=Jörg"] {
        server.http().get("/api/runs", &format!("cookie: {cookie}\r\n")).unwrap().expect(401);
    }
    // a page that has lost it is not taken apart, and leads to where it is given
    page.open(&url(&server, "/?workload=inventory&store=sqlite"));
    page.call("Network.clearBrowserCookies", &json!({}));
    page.tab_to("#lock-none");
    page.press(" ");
    page.until("location.pathname === '/login' && location.search.includes('next=%2F%3Fworkload')");
    // it leads nowhere else
    let own = format!("origin: http://{}\r\n", server.address);
    for (next, to) in [
        ("/runs/x?a=b", "/runs/x?a=b"),
        ("//evil.example", "/"),
        ("/runs//evil", "/"),
        ("http://evil.example", "/"),
        ("/api/runs", "/"),
        ("/runs\\evil", "/"),
    ] {
        let body = format!(
            "token={token}&next={}",
            next.replace('?', "%3F").replace('=', "%3D").replace('\\', "%5C")
        );
        let entered = post(&server, "/login", &own, &body).expect(303);
        assert!(entered.head.contains(&format!("location: {to}\r\n")), "{next}: {}", entered.head);
        let cookie = entered.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Lax") && !cookie.contains(token), "{cookie}");
        let cookie = format!("cookie: name=J\u{f6}rg; {}\r\n", cookie.split(';').next().unwrap());
        server.http().get("/api/runs", &cookie).unwrap().expect(200);
    }
}

fn post(server: &Server, path: &str, origin: &str, body: &str) -> Answer {
    let mut http = server.http();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\n{origin}content-type: application/x-www-form-urlencoded\r\ncontent-length: \
         {}\r\n\r\n{body}",
        server.address,
        body.len()
    );
    http.write(request.as_bytes()).unwrap();
    http.answer().unwrap()
}

/// A form is answered for a page of the server alone, and without scripts, too.
#[test]
fn a_form_is_taken_from_the_server_s_own_page_alone() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let post = |path: &str, origin: &str, body: &str| post(&server, path, origin, body);
    let own = format!("origin: http://{}\r\n", server.address);
    let form = "workload=inventory&store=sqlite&durability=none&clients=2&duration=200ms&warmup=0s";
    for origin in ["", "origin: http://evil.example\r\n", "origin: null\r\n"] {
        post("/runs", origin, form).expect(403);
    }
    let wrong = post("/runs", &own, &form.replace("200ms", "soon")).expect(422);
    assert!(wrong.body.contains("duration") && wrong.body.contains("soon"), "{}", wrong.body);
    assert!(
        wrong.body.contains("Not started: ") && wrong.body.contains("aria-invalid=\"true\""),
        "{}",
        wrong.body
    );
    // what is no option of a plan is none of a form, and what is not run as it was asked for is not run
    for (more, said) in [
        ("&p-out=%2Ftmp", "the form has no field p-out"),
        ("&resume=x", "the form has no field resume"),
        ("&fault=--help", "fault"),
        ("&clients=4", "Clients is there twice"),
        ("&store=mysqll", "Stores has no mysqll"),
        ("&durability=disc", "Durability has no disc"),
        ("&store=rabbitmq", "Stores rabbitmq: "),
        ("&p-skew=x", "skew"),
    ] {
        let refused = post("/runs", &own, &format!("{form}{more}")).expect(422);
        assert!(
            refused.body.contains("Not started: ") && refused.body.contains(said),
            "{more}: {}",
            refused.body
        );
    }
    for (other, said) in [
        (form.replace("=inventory", "=invntory"), "there is no workload invntory"),
        (form.replace("&store=sqlite", ""), "choose a store"),
        (form.replace("=inventory", "=queue").replace("&clients=2", "") + "&lock=soft", "nothing to protect"),
    ] {
        let refused = post("/runs", &own, &other).expect(422);
        assert!(refused.body.contains(said), "{other}: {}", refused.body);
    }
    let long = format!("{form}&p-skus={}", "1..10000,".repeat(400));
    assert!(post("/runs", &own, &long).expect(422).body.contains("more than 1000 letters"));
    assert_eq!(server.get("/api/runs").json()["runs"].as_array().unwrap().len(), 0);
    let moved = post("/runs", &own, form).expect(303);
    let path = moved.head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned();
    let run = format!("/api{path}");
    for act in ["stop", "resume"] {
        post(&format!("{path}/{act}"), "", "").expect(403);
    }
    server.until_state(&run, "done");
    post(&format!("{path}/resume"), &own, "").expect(409);
    post(&format!("{path}/stop"), &own, "").expect(303);
    post("/runs/nothing/stop", &own, "").expect(404);
    server.get("/assets/nothing").expect(404);
    for name in ["style.css", "htmx.js", "uplot.js", "figures.js", "plan.js", "run.js"] {
        server.get(&format!("/assets/{name}")).expect(200);
    }
    assert!(server.get("/licences").expect(200).body.contains("Zero-Clause BSD"));
}
