//! The pages for people who would rather look than read. They are made here, as HTML; small scripts keep them current.
//! Everything that they need is in the program, and no request leaves the server.
//!
//! - [`plan`]: choosing what to run: what a form asks for, what can be combined, and why the rest cannot
//! - [`run`]: a run, live or past
//! - [`past`]: the runs that there are, and two of them compared
//! - [`login`]: giving the token of a server that needs one
//! - `assets/`: style sheet and scripts

mod login;
mod past;
mod plan;
mod run;

use axum::{
    Router,
    extract::{FromRequest, FromRequestParts, Path, Request},
    http::{Method, StatusCode, Uri, header, request::Parts},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use maud::{DOCTYPE, Markup, html};
use url::form_urlencoded;

use crate::{
    app::App,
    http::{Problem, whole},
    runs::Record,
};

/// What a page may load: its own style sheet and scripts.
const OF_PAGE: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
                       form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HTMX: &str = include_str!("../../vendor/htmx/htmx.min.js");
const HTMX_LICENSE: &str = include_str!("../../vendor/htmx/LICENSE");
const STYLE: &str = include_str!("assets/style.css");
const PLAN_SCRIPT: &str = include_str!("assets/plan.js");
const RUN_SCRIPT: &str = include_str!("assets/run.js");

/// The pages, and what they load.
pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/", get(plan::show))
        .route("/runs", get(past::list).post(plan::start))
        .route("/runs/{id}", get(run::show))
        .route("/runs/{id}/findings", get(run::findings))
        .route("/runs/{id}/stop", post(run::stop))
        .route("/runs/{id}/resume", post(run::resume))
        .route("/compare", get(past::compare))
        .route(login::PATH, get(login::show).post(login::enter))
        .route("/assets/{name}", get(asset))
        .route("/licences", get(licences))
}

/// Whether a path is open without a token: what asks for the token, and what that page loads.
pub(crate) fn is_open(path: &str) -> bool {
    path == login::PATH || path.starts_with("/assets/")
}

/// Whether a path is of a page, whose reader is asked for the token and not refused.
pub(crate) fn is_page(path: &str) -> bool {
    let is_report = path.starts_with("/api/runs/") && path.ends_with("/report.html");
    ["/", "/runs", "/compare", "/licences"].contains(&path) || path.starts_with("/runs/") || is_report
}

/// Leads whoever needs the token to where it is given, and back. A piece of a page is not replaced by that.
pub(crate) fn to_login(request: &Request) -> Response {
    let shown =
        request.headers().get("hx-current-url").and_then(|url| url.to_str().ok()?.parse::<Uri>().ok());
    let is_piece = request.headers().contains_key("hx-request");
    let page = if is_piece { shown.as_ref() } else { Some(request.uri()) };
    // what was sent to be done is not done after it
    let page = page.filter(|_| matches!(*request.method(), Method::GET | Method::HEAD));
    let next = page.and_then(|page| page_of(page.path_and_query()?.as_str()));
    let query =
        next.map(|next| form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish());
    let login = query.map_or_else(|| login::PATH.to_owned(), |query| format!("{}?{query}", login::PATH));
    if is_piece {
        return (StatusCode::UNAUTHORIZED, [("hx-redirect", login)]).into_response();
    }
    Redirect::to(&login).into_response()
}

/// The page to which a text leads that a request has; none if it leads elsewhere.
fn page_of(next: &str) -> Option<&str> {
    let path = next.split(['?', '#']).next().unwrap_or_default();
    let is_plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    (is_plain && is_page(path) && !path.contains("//")).then_some(next)
}

fn to_run(run: &Record) -> Redirect {
    Redirect::to(&format!("/runs/{}", run.id))
}

/// A page, or a piece of one.
struct Page {
    status: StatusCode,
    markup: Markup,
}

impl Page {
    fn ok(markup: Markup) -> Self {
        Self { status: StatusCode::OK, markup }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let headers = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CONTENT_SECURITY_POLICY, OF_PAGE),
            // without it browsers would not say of a form which page it comes from
            (header::REFERRER_POLICY, "same-origin"),
        ];
        (self.status, headers, self.markup.into_string()).into_response()
    }
}

/// What is wrong, as a page.
struct Wrong(Problem);

impl<P: Into<Problem>> From<P> for Wrong {
    fn from(problem: P) -> Self {
        Self(problem.into())
    }
}

impl IntoResponse for Wrong {
    fn into_response(self) -> Response {
        let Self(problem) = self;
        let content = html! {
            h1 { (problem.title()) }
            p.bad { (problem.detail()) }
            p { a href="/" { "New run" } " · " a href="/runs" { "Runs" } }
        };
        let markup = layout(problem.title(), "", &[], &content);
        Page { status: problem.status(), markup }.into_response()
    }
}

/// The run that a path names.
struct Which(String);

impl FromRequestParts<App> for Which {
    type Rejection = Wrong;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Wrong> {
        let crate::http::Which(id) = crate::http::Which::from_request_parts(parts, app).await?;
        Ok(Self(id))
    }
}

/// A whole page. `here` is the path of the entry of the menu that it belongs to.
fn layout(title: &str, here: &str, scripts: &[&str], content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · acidtest" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/assets/style.css";
                // what is folded away stays so; nothing is evaluated
                meta name="htmx-config" content=r#"{"includeIndicatorCSS":false,"morphIgnore":["data-htmx-powered","open"]}"#;
                @for script in scripts { script src={ "/assets/" (script) } defer {} }
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                header.top {
                    strong { "acidtest" }
                    nav.menu aria-label="Pages" {
                        @for (path, word) in [("/", "New run"), ("/runs", "Runs")] {
                            a href=(path) aria-current=[(path == here).then_some("page")] { (word) }
                        }
                    }
                }
                main id="content" tabindex="-1" { (content) }
                footer { p { "acidtest " (env!("CARGO_PKG_VERSION")) " · " a href="/licences" { "licences" } } }
            }
        }
    }
}

async fn asset(Path(name): Path<String>) -> Response {
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    let (kind, text) = match &*name {
        "style.css" => (
            "text/css; charset=utf-8",
            [acidtest_charts::STYLE, acidtest_report::STYLE, STYLE].join("\n").into(),
        ),
        "htmx.js" => (SCRIPT, HTMX.into()),
        "uplot.js" => (SCRIPT, acidtest_charts::SCRIPT.into()),
        "figures.js" => (SCRIPT, acidtest_charts::FIGURES.into()),
        "plan.js" => (SCRIPT, PLAN_SCRIPT.into()),
        "run.js" => (SCRIPT, RUN_SCRIPT.into()),
        _ => return Wrong(Problem::not_found("there is nothing at this path")).into_response(),
    };
    let text: std::borrow::Cow<'static, str> = text;
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn licences() -> Page {
    Page::ok(layout(
        "Licences",
        "",
        &[],
        &html! {
            h1 { "Licences of what these pages load" }
            h2 { "uPlot" }
            pre tabindex="0" { (acidtest_charts::LICENSE) }
            h2 { "htmx" }
            pre tabindex="0" { (HTMX_LICENSE) }
        },
    ))
}

/// What a form or a query says: names with their values, in their order.
struct Asked(Vec<(String, String)>);

impl Asked {
    fn read(text: &[u8]) -> Self {
        Self(form_urlencoded::parse(text).into_owned().collect())
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of a field, without the blanks around it; empty if it is not there.
    fn one(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.trim())
    }
}

/// The fields of a form that a page of this server sent.
struct Sent(Asked);

impl FromRequest<App> for Sent {
    type Rejection = Wrong;

    async fn from_request(request: Request, _: &App) -> Result<Self, Wrong> {
        // where it comes from was checked, if it says so; and every browser does
        if !request.headers().contains_key(header::ORIGIN) {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "origin",
                "The request is not answered",
                "a form must say which page it comes from (Origin); programs other than browsers send JSON to /api/runs",
            )
            .into());
        }
        Ok(Self(Asked::read(&whole(request.into_body()).await?)))
    }
}
