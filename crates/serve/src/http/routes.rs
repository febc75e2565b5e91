//! What can be asked for.

use std::{
    convert::Infallible,
    io::{self, Read},
    path::Path as File,
    time::Duration,
};

use acidtest_report::{NamedResult, page};
use acidtest_results::Plan;
use axum::{
    Router,
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Query, Request, State as Of},
    http::{HeaderMap, StatusCode, header, request::Parts},
    middleware,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    about::{RunAbout, RunDetail, RunList, StoreList, WorkloadList},
    body::{self, Json},
    guard::guard,
    openapi,
    problem::Problem,
};
use crate::{
    app::{App, Compared, unreadable},
    pages, results,
    runs::{Record, State},
    trigger::{TimesMs, Trigger, Triggered},
};

/// Readers of events at once.
const STREAMS: u64 = 256;

/// The longest silence on a stream of events.
const SILENCE: Duration = Duration::from_secs(15);

/// Bytes of a result that are read at once.
const PIECE: usize = 256 << 10;

/// Runs that a list has if nothing else is asked for, and at most.
const LISTED: usize = 100;
const MOST_LISTED: usize = 1_000;

/// What a report may load: what it has in itself.
const OF_REPORT: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
                         frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Everything that can be asked for, and its description.
pub(crate) fn router(app: App) -> Router {
    let (router, described) = OpenApiRouter::with_openapi(openapi::head())
        .routes(routes!(list_runs, start_run))
        .routes(routes!(show_run, stop_run))
        .routes(routes!(resume_run))
        .routes(routes!(events))
        .routes(routes!(result))
        .routes(routes!(report))
        .routes(routes!(compare_runs))
        .routes(routes!(stores))
        .routes(routes!(workloads))
        .routes(routes!(generate_load))
        .routes(routes!(metrics))
        .split_for_parts();
    let document = Bytes::from(openapi::document(described).to_string());
    router
        .route(
            "/api/openapi.json",
            axum::routing::get(async move || ([(header::CONTENT_TYPE, "application/json")], document)),
        )
        .merge(pages::router())
        .fallback(async || {
            Problem::not_found("there is nothing at this path; GET /api/openapi.json lists the paths")
        })
        .method_not_allowed_fallback(async || {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method",
                "The method is not allowed here",
                "the header Allow lists the allowed methods, and so does GET /api/openapi.json",
            )
        })
        .layer(middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
    let body = serde_json::to_string(value).map_err(|error| Problem::internal(error.to_string()))?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// A run that was just asked for, with its path in the header Location.
fn accepted(app: &App, record: &Record) -> Result<Response, Problem> {
    let run = RunAbout::of(app, record);
    let location = run.links.run.clone();
    let mut response = json(StatusCode::ACCEPTED, &run)?;
    if let Ok(location) = location.parse() {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    limit: Option<usize>,
    before: Option<String>,
}

/// The runs, the latest first
#[utoipa::path(get, path = "/api/runs", tag = "runs", params(
    ("limit" = Option<u32>, Query, description = "How many at most, 1 to 1,000; 100 if not given", minimum = 1, maximum = 1000),
    ("before" = Option<String>, Query, description = "Only runs requested before the run with this id")),
    responses((status = 200, description = "The runs", body = ref("#/components/schemas/RunList")),
              (status = "4XX", description = "What is wrong", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json")))]
async fn list_runs(Of(app): Of<App>, query: AskedFor<ListQuery>) -> Result<Response, Problem> {
    let ListQuery { limit, before } = query.0;
    let limit = limit.unwrap_or(LISTED);
    if !(1..=MOST_LISTED).contains(&limit) {
        return Err(Problem::bad_request("limit must be 1 to 1000"));
    }
    let known = |id: String| app.runs.get(&id).ok_or_else(|| Problem::no_run(&id));
    let before = before.map(known).transpose()?.map_or(u64::MAX, |record| record.number);
    let (records, more) = app.runs.list(before, limit);
    let runs = records.iter().map(|record| RunAbout::of(&app, record)).collect();
    let others = if before == u64::MAX { app.others().await? } else { Vec::new() };
    json(StatusCode::OK, &RunList { runs, more, others })
}

/// Run a plan, when its turn comes
///
/// The plan is checked as the command line checks it, before it is taken. Runs are made one at a time, in the order in
/// which they were asked for. Addresses of stores are those that the server was told (`--allow-store`), without passwords.
#[utoipa::path(post, path = "/api/runs", tag = "runs",
    request_body(content = ref("#/components/schemas/Plan"), description = "The plan", content_type = "application/json"),
    responses((status = 202, description = "The run, which waits for its turn", body = ref("#/components/schemas/RunAbout"),
               headers(("Location" = String, description = "The path of the run"))),
              (status = 507, description = "It cannot be stored", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
              (status = "4XX", description = "What is wrong", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json")))]
async fn start_run(Of(app): Of<App>, PlanBody(plan): PlanBody) -> Result<Response, Problem> {
    let record = app.submit(plan).await?;
    accepted(&app, &record)
}

/// A run with its plan
#[utoipa::path(get, path = "/api/runs/{id}", tag = "runs", params(("id" = String, Path, description = "The run's id")),
    responses((status = 200, description = "The run", body = ref("#/components/schemas/RunDetail")),
              (status = "4XX", description = "What is wrong", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json")))]
async fn show_run(Of(app): Of<App>, Which(id): Which) -> Result<Response, Problem> {
    let record = app.find(&id).await?;
    let run = RunAbout::of(&app, &record);
    let has_result = results::is_there(&app.runs.file(&record));
    json(StatusCode::OK, &RunDetail { run, plan: record.plan, command: record.command, has_result })
}

/// Stop a run tidily
///
/// What was measured until then is its result. A run that waits is not made. One that has ended stays as it is.
#[utoipa::path(delete, path = "/api/runs/{id}", tag = "runs", params(("id" = String, Path, description = "The run's id")),
    responses((status = 200, description = "It has ended", body = ref("#/components/schemas/RunAbout")),
              (status = 202, description = "It is being stopped", body = ref("#/components/schemas/RunAbout")),
              (status = "4XX", description = "What is wrong", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json")))]
async fn stop_run(Of(app): Of<App>, Which(id): Which) -> Result<Response, Problem> {
    let record = app.stop(&id).await?;
    let status = if record.state.has_ended() { StatusCode::OK } else { StatusCode::ACCEPTED };
    json(status, &RunAbout::of(&app, &record))
}

/// Go on with a run that ended before its last trial
#[utoipa::path(post, path = "/api/runs/{id}/resume", tag = "runs", params(("id" = String, Path, description = "The run's id")),
    responses((status = 202, description = "The run, which waits for its turn", body = ref("#/components/schemas/RunAbout")),
              (status = 507, description = "It cannot be stored", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
              (status = "4XX", description = "What is wrong", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json")))]
async fn resume_run(Of(app): Of<App>, Which(id): Which) -> Result<Response, Problem> {
    accepted(&app, &app.resume(&id).await?)
}

/// What happens in a run, as server-sent events
///
/// First comes what is still kept of it, then what happens, each second at least; the stream ends with the run. An event's
/// data is an `Event`, and its name is that of the event. With the header `Last-Event-ID`, only what came after it is sent.
#[utoipa::path(get, path = "/api/runs/{id}/events", tag = "runs", params(("id" = String, Path, description = "The run's id"),
    ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that is known")),
    responses((status = 200, description = "The events", body = ref("#/components/schemas/Event"), content_type = "text/event-stream"),
              (status = 503, description = "There are too many readers", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
              (status = "4XX", description = "What is wrong", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json")))]
async fn events(Of(app): Of<App>, Which(id): Which, headers: HeaderMap) -> Result<Response, Problem> {
    let live = app.runs.live(&id).ok_or_else(|| Problem::no_run(&id))?;
    let counted = app.metrics.stream(STREAMS).ok_or_else(|| {
        Problem::too_much("streams", format!("{STREAMS} readers follow runs already; ask again later"))
    })?;
    let reader = live.read_after(headers.get("last-event-id").and_then(|last| last.to_str().ok()));
    let events = stream::unfold((reader, counted), async |(mut reader, counted)| {
        let text = match tokio::time::timeout(SILENCE, reader.next()).await {
            Ok(text) => text?,
            // a comment: whoever is gone is noticed
            Err(_) => Bytes::from_static(b":\n\n"),
        };
        Some((Ok::<_, Infallible>(Frame::data(text)), (reader, counted)))
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    Ok((kind, Body::new(StreamBody::new(events))).into_response())
}

/// The result of a run
///
/// It is the file that `acidtest run` writes; of a run that is under way, as far as it has come.
#[utoipa::path(get, path = "/api/runs/{id}/result", tag = "runs", params(("id" = String, Path, description = "The run's id")),
    responses((status = 200, description = "The result", body = ref("#/components/schemas/RunResult")),
              (status = "4XX", description = "What is wrong", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json")))]
async fn result(Of(app): Of<App>, Which(id): Which) -> Result<Response, Problem> {
    let record = app.find(&id).await?;
    let path = app.runs.file(&record);
    let opened =
        app.heavy(move || results::open(&path).map_err(|error| unreadable(&record, error.into()))).await?;
    let (file, length) = opened;
    // in pieces: whoever reads slowly holds little
    let pieces = stream::try_unfold((file, length), async |(mut file, left)| {
        if left == 0 {
            return Ok::<_, io::Error>(None);
        }
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
            file.read_exact(&mut piece).map(|()| (piece, file))
        });
        let (piece, file) = read.await.map_err(io::Error::other)??;
        let left = left - piece.len() as u64;
        Ok(Some((Frame::data(Bytes::from(piece)), (file, left))))
    });
    let headers =
        [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_LENGTH, length.to_string())];
    Ok((headers, Body::new(StreamBody::new(pieces))).into_response())
}

/// The report of a run's result, as one page
#[utoipa::path(get, path = "/api/runs/{id}/report.html", tag = "runs", params(("id" = String, Path, description = "The run's id")),
    responses((status = 200, description = "The page", body = String, content_type = "text/html"),
              (status = "4XX", description = "What is wrong", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json")))]
async fn report(Of(app): Of<App>, Which(id): Which) -> Result<Response, Problem> {
    let record = app.find(&id).await?;
    let result = app.result(&record).await?;
    let draw = move || {
        let name = record.file_name();
        page(&[NamedResult { name: &name, result: &result }], &[])
            .map_err(|error| Problem::internal(error.to_string()))
    };
    let text = app.heavy(draw).await?;
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, OF_REPORT)];
    Ok((headers, text).into_response())
}

/// Two runs, or cells of one, compared figure by figure
#[utoipa::path(get, path = "/api/compare", tag = "runs", params(
    ("a" = String, Query, description = "The id of run A"),
    ("b" = Option<String>, Query, description = "The id of run B; cells of A are compared if it is not given"),
    ("a_cells" = Option<String>, Query, description = "Which cells of A, as in lock=none,clients=16"),
    ("b_cells" = Option<String>, Query, description = "Which cells of B")),
    responses((status = 200, description = "The comparison of B with A", body = ref("#/components/schemas/Comparison")),
              (status = "4XX", description = "What is wrong", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json")))]
async fn compare_runs(Of(app): Of<App>, query: AskedFor<Compared>) -> Result<Response, Problem> {
    json(StatusCode::OK, &app.compare(query.0).await?)
}

/// The stores: what is installed here, what each can do, and why it cannot do the rest
#[utoipa::path(get, path = "/api/stores", tag = "about",
    responses((status = 200, description = "The stores", body = ref("#/components/schemas/StoreList"))))]
async fn stores(Of(app): Of<App>) -> Result<Response, Problem> {
    json(StatusCode::OK, &StoreList { stores: app.stores().await? })
}

/// The workloads with their parameters
#[utoipa::path(get, path = "/api/workloads", tag = "about",
    responses((status = 200, description = "The workloads", body = ref("#/components/schemas/WorkloadList"))))]
async fn workloads(Of(app): Of<App>) -> Result<Response, Problem> {
    json(StatusCode::OK, &WorkloadList { workloads: app.program.workloads() })
}

/// Generate load as the locks study does, and answer with what was measured
///
/// The run waits for its turn as others do, and the answer comes when it has ended.
#[utoipa::path(post, path = "/test/gen-load/{store}", tag = "trigger", params(
    ("store" = String, Path, description = "mysql, mysql_nt (its engine without transactions), rmq, es, or a store by its own name, with _ for /")),
    request_body(content = ref("#/components/schemas/Trigger"), description = "The load", content_type = "application/json"),
    responses((status = 200, description = "What was measured", body = ref("#/components/schemas/Triggered")),
              (status = 502, description = "The store could not be reached or started", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
              (status = 507, description = "It cannot be stored", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
              (status = "4XX", description = "What is wrong", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json")))]
async fn generate_load(
    Of(app): Of<App>,
    Which(store): Which,
    Json(trigger): Json<Trigger>,
) -> Result<Response, Problem> {
    let plan = trigger.plan(&store, &app.program.stores())?;
    let record = app.submit(plan).await.map_err(Problem::without_places)?;
    let record = app.runs.ended(&record.id).await.ok_or_else(|| Problem::no_run(&record.id))?;
    let (state, error, run) = (record.state, record.error.clone(), format!("/api/runs/{}", record.id));
    let path = app.runs.file(&record);
    let answered = app.heavy(move || Ok(triggered(&trigger, &record, &path))).await?;
    match answered {
        Some(answer) => json(StatusCode::OK, &answer),
        None if state == State::Failed => Err(Problem::new(
            StatusCode::BAD_GATEWAY,
            "store",
            "Nothing was measured",
            format!("{}\n  the run is {run}", error.as_deref().unwrap_or("no trial could be made")),
        )),
        None => Err(Problem::new(
            StatusCode::CONFLICT,
            "state",
            "The run was stopped",
            format!("it is {} and has measured nothing", state.name().replace('_', " ")),
        )),
    }
}

/// What a run of the trigger measured; none if it measured nothing.
fn triggered(trigger: &Trigger, record: &Record, path: &File) -> Option<Triggered> {
    let result = results::result(path).ok()?;
    let cell = result.cells.first()?;
    let trial = cell.trials.first()?;
    let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6;
    let times = trial.times().ok()?;
    Some(Triggered {
        store: cell.store.clone(),
        request_type: trigger.request_type,
        operations: times.as_ref().map_or(0, |times| times.count),
        elapsed_ms: trial.seconds * 1e3,
        operations_per_second: trial.throughput,
        times_ms: times.map(|ok| TimesMs {
            p50: ms(ok.p50_ns),
            p95: ms(ok.p95_ns),
            p99: ms(ok.p99_ns),
            max: ms(ok.max_ns),
        }),
        durability: cell.durability(),
        verdict: trial.audit.verdict.to_string(),
        said: trial.audit.to_string(),
        breaks_promise: cell.breaks_promise(),
        run: format!("/api/runs/{}", record.id),
    })
}

/// Metrics for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "about",
    responses((status = 200, description = "The metrics, as OpenMetrics text", body = String, content_type = "application/openmetrics-text")))]
async fn metrics(Of(app): Of<App>) -> Result<Response, Problem> {
    let text = app.metrics.text(&app.runs.states()).map_err(|error| Problem::internal(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
        .into_response())
}

/// A plan as a body. A search that does not say how long its probes are measured has them measured for as long as one of
/// the command line.
struct PlanBody(Plan);

#[derive(Deserialize)]
struct Length {
    duration: Option<IgnoredAny>,
    capacity: Option<IgnoredAny>,
}

impl<S: Send + Sync> FromRequest<S> for PlanBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let text = body::json_text(request).await?;
        let mut plan: Plan = body::read(&text)?;
        let Length { duration, capacity } = body::read(&text)?;
        if capacity.is_some() && duration.is_none() {
            plan.search(false);
        }
        Ok(Self(plan))
    }
}

/// The word of a path that says which: a run's id, a store's name.
pub(crate) struct Which(pub(crate) String);

impl FromRequestParts<App> for Which {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, app).await {
            Ok(Path(word)) => Ok(Self(word)),
            Err(error) => {
                Err(Problem::bad_request(format!("the path cannot be read: {}", error.body_text())))
            }
        }
    }
}

/// The query of a request, read strictly.
struct AskedFor<T>(T);

impl<T: DeserializeOwned> axum::extract::FromRequestParts<App> for AskedFor<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, app).await {
            Ok(Query(query)) => Ok(Self(query)),
            Err(error) => {
                let said = error
                    .body_text()
                    .replace("Failed to deserialize query string", "the query cannot be read");
                Err(Problem::bad_request(said))
            }
        }
    }
}
