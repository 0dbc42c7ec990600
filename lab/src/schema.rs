//! The JSON Schema of scenario files, so that an editor completes keys, names of algorithms and their parameters, and shows
//! what they mean. Keys come from the types that read the file, algorithms from the registries.

use crate::file::text::{File, Notation};
use crate::file::{Algorithm, Family, Inner};
use crate::quantity::Amount;
use narrows_core::registry::{Kind, Parameter};
use narrows_core::units::Rate;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The schema, in draft 7, which most editors speak.
pub fn json_schema() -> Value {
    SchemaSettings::draft07().into_generator().into_root_schema_for::<File>().to_value()
}

pub(crate) fn queue(generator: &mut SchemaGenerator) -> Schema {
    part(Family::Queue, generator)
}

pub(crate) fn controller(generator: &mut SchemaGenerator) -> Schema {
    part(Family::Controller, generator)
}

pub(crate) fn stack(generator: &mut SchemaGenerator) -> Schema {
    part(Family::Stack, generator)
}

pub(crate) fn ack_window(generator: &mut SchemaGenerator) -> Schema {
    part(Family::AckWindow, generator)
}

/// Which packets belong to a class: names of flows, or tables of what a header says.
pub(crate) fn pattern(_: &mut SchemaGenerator) -> Schema {
    let port = json!({ "anyOf": [
        { "type": "integer", "minimum": 0, "maximum": 65535 },
        { "type": "string", "pattern": "^\\d+-\\d+$", "description": "from-to" },
    ] });
    let net = json!({ "type": "string", "description": "an address, or one with the length of its prefix: 10.0.0.0/8" });
    let protocol = json!({ "anyOf": [
        { "enum": ["tcp", "udp", "icmp", "icmpv6"] },
        { "type": "integer", "minimum": 0, "maximum": 255 },
    ] });
    let one = json!({ "anyOf": [
        { "type": "string", "description": "a flow's name; with * at its end all that begin so" },
        {
            "type": "object",
            "properties": {
                "source": net, "destination": net, "protocol": protocol, "source_port": port, "destination_port": port,
                "dscp": { "type": "integer", "minimum": 0, "maximum": 63 },
            },
            "additionalProperties": false,
        },
    ] });
    json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
}

/// A reference to the family's definition, which contains itself where algorithms contain others.
fn part(family: Family, generator: &mut SchemaGenerator) -> Schema {
    let name = family.noun();
    let reference = json_schema!({ "$ref": format!("#/definitions/{name}") });
    if !generator.definitions().contains_key(name) {
        generator.definitions_mut().insert(name.into(), Value::Null); // it refers to itself below
        let mut choices = Vec::new();
        for algorithm in family.algorithms() {
            choices.push(named(family, &algorithm));
            choices.push(table(family, &algorithm, generator));
        }
        generator.definitions_mut().insert(name.into(), json!({ "anyOf": choices }));
    }
    reference
}

/// `"reno"`, or `"fifo:128KiB"`.
fn named(family: Family, algorithm: &Algorithm) -> Value {
    match algorithm.parameters.first().filter(|_| family == Family::Queue) {
        None => json!({ "const": algorithm.name, "description": algorithm.summary }),
        Some(first) => {
            let must = algorithm.default_of(first).is_empty();
            let end = if must { ":.+" } else { "(:.+)?" };
            let pattern = format!("^{}{end}$", algorithm.name);
            let description = format!("{}; behind the colon: {}", algorithm.summary, first.meaning);
            json!({ "type": "string", "pattern": pattern, "description": description })
        }
    }
}

/// `{ name = "becc", trigger = 3, inner = "reno" }`
fn table(family: Family, algorithm: &Algorithm, generator: &mut SchemaGenerator) -> Value {
    let mut properties = Map::new();
    let mut required = vec![family.key()];
    properties
        .insert(family.key().into(), json!({ "const": algorithm.name, "description": algorithm.summary }));
    for parameter in algorithm.parameters {
        let default = algorithm.default_of(parameter);
        properties.insert(parameter.name.into(), setting(parameter, default, generator));
        if default.is_empty() {
            required.push(parameter.name);
        }
    }
    if algorithm.inner != Inner::None {
        let mut inner = json!({ "$ref": format!("#/definitions/{}", family.noun()) });
        if let Inner::Default(name) = algorithm.inner {
            inner["default"] = json!(name);
        }
        properties.insert("inner".into(), inner);
    }
    json!({
        "type": "object",
        "description": algorithm.summary,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn setting(parameter: &Parameter, default: &str, generator: &mut SchemaGenerator) -> Value {
    let mut schema = match parameter.kind {
        Kind::Bytes | Kind::Limit => <Notation<Amount>>::json_schema(generator).to_value(),
        Kind::Rate => <Notation<Rate>>::json_schema(generator).to_value(),
        Kind::Time => <Notation<Duration>>::json_schema(generator).to_value(),
        Kind::Ratio => json!({ "type": "number" }),
        Kind::Count => json!({ "type": "integer", "minimum": 0 }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::List => json!({ "anyOf": [
            { "type": "array", "items": { "type": "integer", "minimum": 0 } },
            { "type": "string", "description": "a file of numbers, relative to the scenario file" },
        ] }),
        Kind::Word(words) => json!({ "enum": words }),
    };
    schema["description"] = json!(parameter.meaning);
    if !default.is_empty() {
        // Numbers, switches and lists are written alike in both notations; everything else is a text.
        schema["default"] = serde_json::from_str(default).unwrap_or_else(|_| json!(default));
    }
    schema
}
