//! The form as HTML.

use maud::{Markup, html};

use super::{
    Form, Text,
    choices::{Axis, Choice},
};
use crate::pages::layout;

pub(super) fn page(form: &Form, why: Option<&str>) -> Markup {
    let content = html! {
        h1 { "New run" }
        @if let Some(why) = why {
            div id="wrong" role="alert" tabindex="-1" autofocus {
                p.bad { strong { "Not started: " } (why) }
                @if !form.dropped.is_empty() { ul { @for each in &form.dropped { li { (each) } } } }
            }
        }
        form id="new" method="post" action="/runs" autocomplete="off" hx-get="/" hx-trigger="input delay:200ms" hx-include="this"
            hx-target="this" hx-select="#new" hx-swap="outerMorph" hx-sync="this:replace" hx-replace-url="true" {
            fieldset id="workload" {
                legend { "Workload" }
                @for (place, workload) in form.workloads.iter().enumerate() {
                    label.choice {
                        input type="radio" id={ "workload-" (workload.name) } name="workload" value=(workload.name) checked[place == form.workload];
                        span { strong { (workload.name) } " " span.quiet { (workload.summary.lines().next().unwrap_or_default()) } }
                    }
                }
            }
            (shown(&form.stores))
            div.axes { @for axis in &form.guarantees { (shown(axis)) } }
            fieldset id="driving" {
                legend { "How it is driven" }
                div.fields { @for text in &form.driving { (field(text)) } }
            }
            @if !form.parameters.is_empty() {
                details id="parameters" open[form.parameters.iter().any(|text| !text.written.is_empty())] {
                    summary { "Parameters of the workload" }
                    div.fields { @for text in &form.parameters { (field(text)) } }
                }
            }
            (summary(form))
            p.actions {
                button type="submit" { "Start" }
                noscript { button type="submit" formmethod="get" formaction="/" { "Update" } " Press Update after a choice to see what can be combined with it." }
            }
        }
    };
    layout("New run", "/", &["htmx.js", "plan.js"], &content)
}

/// What follows from what is chosen: the command line and the time, or what is wrong.
fn summary(form: &Form) -> Markup {
    html! {
        section id="summary" role="status" aria-label="What will be run" {
            @if !form.dropped.is_empty() {
                p { "Not chosen:" }
                ul.reasons { @for each in &form.dropped { li { (each) } } }
            }
            @match &form.plan {
                Err(wrong) => { p.bad { (wrong.detail) } }
                Ok(checked) => {
                    pre.command aria-label="The same on the command line" { (checked.command) }
                    p {
                        (checked.cells) @if checked.cells == 1 { " cell" } @else { " cells" }
                        @match checked.seconds {
                            Some(seconds) => { ", driven for " (acidtest_model::figure::lasting(seconds)) "; starting, loading and auditing come on top" }
                            None => { "; how long it takes depends on the stores" }
                        }
                        ". It needs about " (acidtest_model::figure::bytes(checked.memory_bytes as f64)) " of memory and " (acidtest_model::figure::bytes(checked.disk_bytes as f64)) " of disk for its data."
                    }
                    @if !checked.left_out.is_empty() {
                        details { summary { (checked.left_out.len()) " left out, because a store cannot run it" } ul { @for each in &checked.left_out { li { (each) } } } }
                    }
                }
            }
        }
    }
}

/// An axis: its choices, and below them why some cannot be chosen.
fn shown(axis: &Axis) -> Markup {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for choice in &axis.choices {
        for why in choice.refused.iter().chain(&choice.except) {
            match reasons.iter_mut().find(|(other, _)| other == why) {
                Some((_, values)) => values.push(&choice.value),
                None => reasons.push((why, vec![&choice.value])),
            }
        }
    }
    let id = |place: usize| format!("{}-why-{place}", axis.name);
    let described = |choice: &Choice| {
        let ids = reasons.iter().enumerate().filter(|(_, (_, values))| values.contains(&&*choice.value));
        let ids: Vec<String> = ids.map(|(place, _)| id(place)).collect();
        (!ids.is_empty()).then(|| ids.join(" "))
    };
    html! {
        fieldset id={ "axis-" (axis.name) } {
            legend { (axis.label) }
            p.quiet.meaning { (axis.meaning) }
            div.choices { @for choice in &axis.choices {
                label.choice.off[choice.refused.is_some()] {
                    input type="checkbox" id={ (axis.name) "-" (choice.value) } name=(axis.name) value=(choice.value) checked[choice.chosen]
                        disabled[choice.refused.is_some()] aria-describedby=[described(choice)];
                    span { (choice.value) @if let Some(label) = &choice.label { " " span.quiet { (label) } } }
                }
            } }
            @if !reasons.is_empty() {
                ul.reasons { @for (place, (why, values)) in reasons.iter().enumerate() {
                    li id=(id(place)) { strong { (values.join(", ")) } ": " (why) }
                } }
            }
        }
    }
}

fn field(text: &Text) -> Markup {
    let hint = format!("{}-hint", text.name);
    let invalid = text.wrong.is_some().then_some("true");
    html! {
        div.field {
            label for=(text.name) { (text.label) }
            input id=(text.name) name=(text.name) value=(text.written) placeholder=(text.default) autocomplete="off" spellcheck="false"
                disabled[text.idle.is_some()] aria-invalid=[invalid] aria-describedby=(hint);
            span id=(hint) {
                @if let Some(wrong) = &text.wrong { span.bad { (wrong) } }
                @else { span.quiet { (text.idle.as_ref().unwrap_or(&text.meaning)) } }
            }
        }
    }
}
