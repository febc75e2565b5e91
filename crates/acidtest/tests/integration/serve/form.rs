//! What the form offers, held against the check that plans go through.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::server::Server;
use crate::common::{Bench, http::Http};

/// A value of an axis, as the page shows it.
#[derive(Debug)]
struct Offered {
    axis: String,
    value: String,
    is_chosen: bool,
    is_off: bool,
}

/// What the page of a form offers.
fn offered(page: &str) -> Vec<Offered> {
    let inputs = page.split("<input type=\"checkbox\" ").skip(1).map(|rest| rest.split('>').next().unwrap());
    let of = |input: &str, name: &str| {
        let (_, rest) = input.split_once(&format!("{name}=\""))?;
        Some(rest.split('"').next()?.to_owned())
    };
    inputs
        .filter_map(|input| {
            let (is_chosen, is_off) = (input.contains(" checked"), input.contains(" disabled"));
            Some(Offered { axis: of(input, " name")?, value: of(input, " value")?, is_chosen, is_off })
        })
        .collect()
}

/// What the page says of the plan: the command line, or what is wrong.
fn said(page: &str) -> Result<&str, &str> {
    let (_, summary) = page.split_once("id=\"summary\"").unwrap();
    let text = |class: &str| {
        let (_, rest) = summary.split_once(class)?;
        rest.split_once('>')?.1.split('<').next()
    };
    match text("class=\"bad\"") {
        Some(wrong) => Err(wrong),
        None => Ok(text("class=\"command\"").unwrap()),
    }
}

/// The plan with what is chosen of each axis, and this value alone of its own.
fn plan(workload: &str, store: &str, offered: &[Offered], only: &Offered) -> Value {
    let mut chosen: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let value = |text: &str| text.parse::<bool>().map_or_else(|_| json!(text), Value::from);
    for each in offered.iter().filter(|each| each.axis != "store") {
        let is_wanted = if each.axis == only.axis { each.value == only.value } else { each.is_chosen };
        if is_wanted {
            chosen.entry(&each.axis).or_default().push(value(&each.value));
        }
    }
    let mut plan = json!({"workload": workload, "stores": [store], "parameters": {}});
    for (axis, values) in chosen {
        match axis {
            "lock" => plan["locks"] = values.into(),
            "durability" => plan["durability"] = values.into(),
            // of the others, those that are asked for
            _ if axis == only.axis => plan["parameters"][axis.trim_start_matches("p-")] = values[0].clone(),
            _ => {}
        }
    }
    plan
}

/// On every workload and store: what is offered makes a plan that can be run, and what is off is refused.
#[test]
fn what_is_offered_can_be_run_and_what_is_off_is_refused() {
    let bench = Bench::new();
    let server = Server::start(&bench, &[]);
    let mut http = server.http();
    let get = |http: &mut Http, query: &str| http.get(&format!("/?{query}"), "").unwrap().expect(200).body;
    let workloads = server.get("/api/workloads").json()["workloads"].as_array().unwrap().clone();
    let (mut on, mut off) = (0, 0);
    for workload in workloads.iter().map(|workload| workload["name"].as_str().unwrap()) {
        let first = get(&mut http, &format!("workload={workload}"));
        for store in offered(&first).iter().filter(|each| each.axis == "store" && !each.is_off) {
            let store = &store.value;
            let query = format!("workload={workload}&store={store}");
            let page = get(&mut http, &query);
            let all = offered(&page);
            if let Err(wrong) = said(&page) {
                // it cannot carry the workload as it is by default, whatever is chosen
                assert!(all.iter().all(|each| each.axis == "store" || each.is_off), "{query}: {wrong}");
                assert!(wrong.contains("as asked: "), "{query}: {wrong}");
                println!("{query}: {wrong}");
                continue;
            }
            for each in all.iter().filter(|each| each.axis != "store") {
                let asked = format!("{query}&{}={}", each.axis, each.value);
                if each.is_off {
                    let refused =
                        http.send("POST", "/api/runs", &plan(workload, store, &all, each).to_string());
                    let refused = refused.unwrap();
                    assert_eq!(refused.status, 422, "{asked} is off: {}", refused.body);
                    off += 1;
                } else {
                    let page = get(&mut http, &asked);
                    let command = said(&page).unwrap_or_else(|wrong| panic!("{asked} is offered: {wrong}"));
                    let of_axis = |one: &&Offered| one.axis == each.axis && one.is_chosen;
                    let chosen: Vec<String> =
                        offered(&page).iter().filter(of_axis).map(|one| one.value.clone()).collect();
                    assert_eq!(chosen, [each.value.as_str()], "{asked}: {command}");
                    on += 1;
                }
            }
        }
    }
    println!("{on} values are offered, {off} are off");
    assert!(on > 100 && off > 50, "{on} {off}");
    assert_eq!(server.get("/api/runs").json()["runs"], json!([]));
}
