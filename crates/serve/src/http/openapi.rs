//! The description of the interface (`OpenAPI` 3.1), made from the code: its paths from the handlers, its schemas from the
//! types that they read and write.

use acidtest_report::compare::Comparison;
use acidtest_results::{Plan, RunResult};
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder};

use super::{
    about::{RunAbout, RunDetail, RunList, StoreList, WorkloadList},
    problem::Document,
};
use crate::{
    Event,
    trigger::{Trigger, Triggered},
};

/// What comes before the paths.
pub(crate) fn head() -> OpenApi {
    let info = InfoBuilder::new()
        .title("acidtest serve")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Starts, watches, stops and compares runs of acidtest. Errors are problem documents (RFC 9457).",
        ))
        .build();
    OpenApiBuilder::new().info(info).build()
}

/// The whole document, given that of the paths.
pub(crate) fn document(paths: OpenApi) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    generator.subschema_for::<Plan>();
    generator.subschema_for::<RunResult>();
    generator.subschema_for::<Comparison>();
    generator.subschema_for::<Event>();
    generator.subschema_for::<Document>();
    generator.subschema_for::<RunAbout>();
    generator.subschema_for::<RunDetail>();
    generator.subschema_for::<RunList>();
    generator.subschema_for::<StoreList>();
    generator.subschema_for::<WorkloadList>();
    generator.subschema_for::<Trigger>();
    generator.subschema_for::<Triggered>();
    let mut document = serde_json::to_value(paths).unwrap_or_default();
    document["components"]["schemas"] = Value::Object(generator.take_definitions(true));
    document["components"]["securitySchemes"] = json!({
        "token": { "type": "http", "scheme": "bearer", "description": "Where the server was started with --token-file." }
    });
    document["security"] = json!([{}, { "token": [] }]);
    document
}
