//! Giving the token of a server that needs one: a browser keeps what follows from it as a cookie.

use axum::{
    extract::State as Of,
    http::{StatusCode, Uri, header},
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};

use super::{Asked, Page, Sent, Wrong, layout, page_of};
use crate::app::App;

pub(super) const PATH: &str = "/login";

pub(super) async fn show(Of(app): Of<App>, uri: Uri) -> Response {
    if app.guard.token.is_none() {
        return Redirect::to("/").into_response();
    }
    let asked = Asked::read(uri.query().unwrap_or_default().as_bytes());
    Page::ok(page(asked.one("next"), None)).into_response()
}

pub(super) async fn enter(Of(app): Of<App>, Sent(asked): Sent) -> Result<Response, Wrong> {
    let Some(token) = &app.guard.token else { return Ok(Redirect::to("/").into_response()) };
    if !token.is(asked.one("token").as_bytes()) {
        let markup = page(asked.one("next"), Some("This is not the server's token."));
        return Ok(Page { status: StatusCode::UNAUTHORIZED, markup }.into_response());
    }
    let next = Redirect::to(page_of(asked.one("next")).unwrap_or("/"));
    Ok(([(header::SET_COOKIE, token.cookie(app.guard.is_secure))], next).into_response())
}

fn page(next: &str, wrong: Option<&str>) -> Markup {
    let content = html! {
        h1 { "Token" }
        p { "This server needs its token: the content of the file that it was started with (--token-file)." }
        form.login method="post" action=(PATH) {
            input type="hidden" name="next" value=(next);
            label for="token" { "Token" }
            input id="token" name="token" type="password" autocomplete="current-password" required
                aria-describedby=[wrong.map(|_| "wrong")];
            @if let Some(wrong) = wrong { p.bad id="wrong" role="alert" { (wrong) } }
            button type="submit" { "Enter" }
        }
    };
    layout("Token", "", &[], &content)
}
