//! The description of the interface drives the server: what it says is asked for, answered as it says.

use jsonschema::Validator;
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Map, Value, json};

use super::server::{Server, plan};
use crate::common::{
    Bench,
    http::{Answer, header},
};

type Rng = Xoshiro256PlusPlus;

struct Interface {
    document: Value,
}

impl Interface {
    fn read(server: &Server) -> Self {
        let answer = server.get("/api/openapi.json").expect(200);
        assert_eq!(header(&answer.head, "content-type"), Some("application/json"));
        Self { document: answer.json() }
    }

    /// Every operation: its path, its method, and what is said of it.
    fn operations(&self) -> Vec<(String, String, Value)> {
        let mut all = Vec::new();
        for (path, item) in self.document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                all.push((path.clone(), method.to_uppercase(), operation.clone()));
            }
        }
        all
    }

    /// What is said of an answer with this status.
    fn response(operation: &Value, status: u16) -> Option<&Value> {
        let responses = operation["responses"].as_object().unwrap();
        responses.get(&status.to_string()).or_else(|| responses.get(&format!("{}XX", status / 100)))
    }

    /// A check of this schema, which may name others.
    fn validator(&self, schema: &Value) -> Validator {
        let mut whole = schema.as_object().cloned().unwrap_or_default();
        whole.insert("components".to_owned(), self.document["components"].clone());
        jsonschema::validator_for(&Value::Object(whole)).unwrap_or_else(|error| panic!("{schema}: {error}"))
    }

    /// Whether an answer is as it is said to be.
    #[track_caller]
    fn check(&self, what: &str, operation: &Value, answer: &Answer) {
        let Some(said) = Self::response(operation, answer.status) else {
            panic!("{what}: {} is not said: {answer:?}", answer.status);
        };
        let kind = header(&answer.head, "content-type").unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default();
        let Some(content) = said["content"].get(kind) else { panic!("{what}: {kind} is not said in {said}") };
        if kind.ends_with("json") {
            let value = answer.json();
            if let Err(error) = self.validator(&content["schema"]).validate(&value) {
                panic!("{what}: {error} at {} of {value}", error.instance_path());
            }
        }
    }

    /// A value that a schema allows, as far as this understands it.
    fn value(&self, rng: &mut Rng, schema: &Value, depth: u32) -> Value {
        if let Some(name) = schema["$ref"].as_str() {
            let pointer = name.trim_start_matches('#');
            return self.value(rng, &self.document.pointer(pointer).unwrap().clone(), depth);
        }
        for key in ["oneOf", "anyOf", "allOf"] {
            if let Some(any) = schema[key].as_array() {
                let one = any.choose(rng).unwrap();
                return self.value(rng, one, depth);
            }
        }
        if let Some(constant) = schema.get("const") {
            return constant.clone();
        }
        if let Some(any) = schema["enum"].as_array() {
            return any.choose(rng).cloned().unwrap();
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => vec!["string", "integer", "null"],
        };
        match *kinds.choose(rng).unwrap() {
            "boolean" => json!(rng.random_bool(0.5)),
            "integer" => json!(rng.random_range(0..4)),
            "number" => json!(rng.random_range(0.0..2.0)),
            "null" => Value::Null,
            "array" if depth > 0 => {
                (0..rng.random_range(0..3)).map(|_| self.value(rng, &schema["items"], depth - 1)).collect()
            }
            "array" => json!([]),
            "object" => {
                let mut object = Map::new();
                let required: Vec<&str> =
                    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                    if required.contains(&name.as_str()) || rng.random_bool(0.15) {
                        object.insert(name.clone(), self.value(rng, property, depth.saturating_sub(1)));
                    }
                }
                Value::Object(object)
            }
            _ => json!(["inventory", "records", "sqlite", "memory", "10ms", "x", ""].choose(rng).unwrap()),
        }
    }
}

/// The path with its parameters, and the query, drawn.
fn address(rng: &mut Rng, path: &str, operation: &Value, ids: &[String]) -> String {
    let (mut path, mut query) = (path.to_owned(), Vec::new());
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap();
        let value = match name {
            "id" | "a" | "b" | "before" => ids.choose(rng).unwrap().clone(),
            // two runs are compared as a whole, or cells of each
            "a_cells" | "b_cells" => ["lock=native", "lock=none", "x"].choose(rng).unwrap().to_string(),
            "store" => ["sqlite", "memory", "mysq"].choose(rng).unwrap().to_string(),
            "limit" => rng.random_range(0..3).to_string(),
            _ => "x".to_owned(),
        };
        let is_required = parameter["required"].as_bool().unwrap_or(false);
        match parameter["in"].as_str() {
            Some("path") => path = path.replace(&format!("{{{name}}}"), &value),
            Some("query") if is_required || rng.random_bool(0.5) => query.push(format!("{name}={value}")),
            _ => {}
        }
    }
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

#[test]
fn the_server_answers_as_its_description_says() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let interface = Interface::read(&server);
    assert!(interface.document["openapi"].as_str().unwrap().starts_with("3.1"));
    let operations = interface.operations();
    // everything that the interface is to have
    for (method, path) in [
        ("POST", "/api/runs"),
        ("GET", "/api/runs"),
        ("GET", "/api/runs/{id}"),
        ("DELETE", "/api/runs/{id}"),
        ("POST", "/api/runs/{id}/resume"),
        ("GET", "/api/runs/{id}/events"),
        ("GET", "/api/runs/{id}/result"),
        ("GET", "/api/runs/{id}/report.html"),
        ("GET", "/api/compare"),
        ("GET", "/api/stores"),
        ("GET", "/api/workloads"),
        ("POST", "/test/gen-load/{store}"),
        ("GET", "/metrics"),
    ] {
        assert!(
            operations.iter().any(|(of, is, _)| (of.as_str(), is.as_str()) == (path, method)),
            "{method} {path}"
        );
    }
    // a plan as it is used: every event, the result and the comparison are as they are said to be
    let run = server.run(&plan(1_200));
    let events = interface.validator(&json!({"$ref": "#/components/schemas/Event"}));
    for event in server.events(&run) {
        assert!(events.is_valid(&event), "{event}");
    }
    let done = run.rsplit('/').next().unwrap().to_owned();
    let ids = [done.clone(), done.clone(), "20200101T000000Z-1".to_owned(), "x".to_owned()];
    let mut rng = Rng::seed_from_u64(13);
    let mut seen = std::collections::BTreeSet::new();
    for (path, method, operation) in &operations {
        for _ in 0..40 {
            let address = address(&mut rng, path, operation, &ids);
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let body = match schema {
                Value::Null => String::new(),
                _ if path == "/api/runs" && rng.random_bool(0.1) => plan(20).to_string(),
                // short, so that what is taken is soon over
                _ => {
                    let mut body = interface.value(&mut rng, schema, 4);
                    for (key, value) in
                        [("duration", json!("20ms")), ("timeInMilis", json!(20)), ("trials", json!(1))]
                    {
                        if body.get(key).is_some() {
                            body[key] = value;
                        }
                    }
                    body.to_string()
                }
            };
            let what = format!("{method} {address} {body}");
            let mut http = server.http();
            let answer = if path.ends_with("/events") {
                // it has no length
                http.get(&address, "").unwrap()
            } else {
                http.send(method, &address, &body).unwrap_or_else(|error| panic!("{what}: {error}"))
            };
            interface.check(&what, operation, &answer);
            if answer.status == 202 && *method == "POST" {
                // whatever was taken may be long
                server.delete(answer.json()["links"]["run"].as_str().unwrap());
            }
            seen.insert((path.clone(), method.clone(), answer.status));
        }
    }
    // two runs with the same cells are compared
    let other = server.run(&plan(100));
    server.until_state(&other, "done");
    let compared =
        server.get(&format!("/api/compare?a={done}&b={}", other.rsplit('/').next().unwrap())).expect(200);
    let (_, _, operation) = operations.iter().find(|(path, ..)| path == "/api/compare").unwrap();
    interface.check("compare", operation, &compared);
    for (path, method, status) in [
        ("/api/runs", "POST", 202),
        ("/api/runs", "POST", 422),
        ("/api/runs/{id}/result", "GET", 200),
        ("/api/runs/{id}/result", "GET", 404),
        ("/test/gen-load/{store}", "POST", 422),
    ] {
        assert!(seen.contains(&(path.to_owned(), method.to_owned(), status)), "{method} {path} {status}");
    }
}
