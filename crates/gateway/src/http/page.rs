//! The page of a running gateway: what comes in and what is stored, each second, and which stage limits.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use hyper::{
    StatusCode,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, X_FRAME_OPTIONS},
};
use maud::{DOCTYPE, PreEscaped, html};
use tokio::sync::mpsc;

use super::{
    Service,
    answer::{self, Answer, Problem, header, whole},
};
use crate::metrics::Stage;

const SCRIPT: &str = include_str!("page.js");
const CSS: &str = include_str!("page.css");
/// What the page may load: nothing but the events of its own gateway.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn page(service: &Service) -> Answer {
    let title = if service.authenticator.is_some() { "acidtest gateway" } else { "acidtest collector" };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(acidtest_charts::STYLE)) (PreEscaped(CSS)) }
            }
            body {
                main {
                    h1 { (title) }
                    p #state role="status" { "Connecting …" }
                    p #limit aria-live="polite" {}
                    dl #figures {
                        @for (id, name) in [
                            ("received", "received"), ("acknowledged", "acknowledged"), ("stored", "stored"),
                            ("refused", "refused"), ("waiting", "waiting"), ("oldest", "oldest waits"),
                            ("sync_entries", "entries a sync"), ("batch_entries", "entries a transaction"),
                            ("bytes", "queue"), ("connections", "connections"), ("threads_busy", "threads busy"),
                        ] {
                            div { dt { (name) } dd id=(id) { "–" } }
                        }
                    }
                    div.charts {
                        figure { figcaption { "Entries a second" } div #rates.chart {} }
                        figure { figcaption #waits { "Entries that wait" } div #depth.chart {} }
                        figure { figcaption { "Age of the oldest that waits, in seconds" } div #age.chart {} }
                    }
                    h2 { "Stages" }
                    div.scroll tabindex="0" role="region" aria-label="Stages" {
                        table {
                            thead { tr {
                                th scope="col" { "stage" } th.n scope="col" { "a second" } th.n scope="col" { "takes" }
                                th.n scope="col" { "busy" } th scope="col" { "what it does" }
                            } }
                            tbody #stages {
                                @for stage in Stage::ALL {
                                    tr { th scope="row" { (stage.name()) } td.n {} td.n {} td.n {} td { (does(stage)) } }
                                }
                            }
                        }
                    }
                    h2 { "Set up" }
                    dl.about { @for (name, words) in &service.about { dt { (name) } dd { (words) } } }
                }
                footer {
                    p { "acidtest " (env!("CARGO_PKG_VERSION")) " · figures over 5 seconds · "
                        a href="/metrics" { "metrics for Prometheus" } }
                    details { summary { "uPlot's licence" } pre { (acidtest_charts::LICENSE) } }
                }
                script { (PreEscaped(acidtest_charts::SCRIPT)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    let mut answer = whole(StatusCode::OK, "text/html; charset=utf-8", page.into_string());
    header(&mut answer, CONTENT_SECURITY_POLICY, POLICY);
    header(&mut answer, X_FRAME_OPTIONS, "DENY");
    header(&mut answer, CACHE_CONTROL, "no-store");
    answer
}

fn does(stage: Stage) -> &'static str {
    match stage {
        Stage::Accept => "waits for a thread after a client has connected",
        Stage::Authenticate => "finds out whose token it is",
        Stage::Validate => "reads and checks a request's entries",
        Stage::Queue => "waits: for the sync or the message before, or for a connection to the database",
        Stage::Sync => "writes what came meanwhile, and syncs it; or has a broker confirm it",
        Stage::Collect => "reads a batch back",
        Stage::Commit => "stores it in one transaction",
    }
}

/// Events for a page: first all seconds that are shown, then each as it comes.
pub(super) fn events(service: &Arc<Service>) -> Result<Answer, Problem> {
    let watcher = Arc::clone(&service.watchers).try_acquire_owned().map_err(|_| {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many pages are open",
            "close one, and open this again",
        )
    })?;
    let (send, receive) = mpsc::channel(2);
    let mut seconds = service.seconds.clone();
    let watchers = Arc::clone(&service.watchers);
    tokio::spawn(async move {
        let _watcher = watcher;
        let all = seconds.borrow_and_update().clone();
        let mut text = answer::json(&all.seconds);
        // it ends when the gateway does, or the page
        loop {
            if watchers.is_closed() {
                return Ok(());
            }
            let event = [b"data: ".as_slice(), &text, b"\n"].concat();
            if send.send(Bytes::from(event)).await.is_err() {
                return Ok::<(), Infallible>(());
            }
            tokio::select! {
                changed = seconds.changed() => if changed.is_err() { return Ok(()) },
                () = send.closed() => return Ok(()),
            }
            let latest = seconds.borrow_and_update().clone();
            text = answer::json(&latest.seconds.back());
        }
    });
    Ok(answer::events(receive))
}
