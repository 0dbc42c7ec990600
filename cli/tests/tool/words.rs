//! `list`, `schema`, `completions`, `claims`, `--help`: what the tool says of itself.

use super::{Folder, json, run, stderr, stdout};
use serde_json::Value;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[track_caller]
fn said(args: &[&str]) -> String {
    let output = run(&Folder::new(), args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
    stdout(&output).to_string()
}

#[test]
fn list_shows_every_family_and_with_a_word_all_parameters() {
    let papers = format!("{ROOT}/papers");
    let all = said(&["list", "--papers", &papers]);
    for title in ["Congestion control", "Queue disciplines", "TCP stacks", "Metrics of claims", "Papers"] {
        assert!(all.contains(title), "{title}: {all}");
    }
    for name in ["reno", "becc", "becc-modern", "fifo", "loss", "net2", "rfc", "goodput"] {
        assert!(all.lines().any(|l| l.split_whitespace().next() == Some(name)), "{name}: {all}");
    }
    let becc = said(&["list", "becc"]);
    for parameter in narrows_core::congestion::by_name("becc").unwrap().parameters {
        let line = becc
            .lines()
            .find(|l| l.split_whitespace().next() == Some(parameter.name))
            .unwrap_or_else(|| panic!("{becc}"));
        assert!(line.contains(parameter.default), "{line}");
        assert!(becc.contains(parameter.meaning), "{}", parameter.name);
    }
}

#[test]
fn completions_for_every_shell_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = said(&["completions", shell]);
        assert!(
            script.contains("reproduce") && script.contains("--seeds") || script.contains("seeds"),
            "{shell}"
        );
    }
}

#[test]
fn help_names_every_command_and_no_options_are_unexplained() {
    let help = said(&["--help"]);
    for command in
        ["run", "compare", "reproduce", "claims", "emulate", "gateway", "list", "schema", "completions"]
    {
        assert!(help.contains(&format!("  {command}")), "{help}");
        let of_command = said(&[command, "--help"]);
        assert!(of_command.contains("Usage: narrows"), "{of_command}");
    }
}

#[test]
fn every_claim_is_listed_with_its_recorded_verdict() {
    let papers = format!("{ROOT}/papers");
    let claims = json(&Folder::new(), &["claims", "--papers", &papers, "--format", "json"]);
    let claims = claims["claims"].as_array().unwrap();
    assert!(claims.len() >= 40, "{}", claims.len());
    for claim in claims {
        for host in claim["hosts"].as_array().unwrap().iter().map(|h| h.as_str().unwrap()) {
            assert!(claim["recorded"][host].is_string(), "{host}: {claim}");
            // One reason for all hosts, or one for each that needs it.
            let reason = claim["reason"].as_str().or_else(|| claim["reason"][host].as_str());
            let differs = claim["recorded"][host] == "differs";
            assert!(!differs || reason.is_some_and(|r| !r.is_empty()), "a reason on {host}: {claim}");
        }
    }
}

/// Follows a reference into the schema.
fn resolve<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    match schema["$ref"].as_str() {
        Some(path) => {
            resolve(root, root.pointer(path.trim_start_matches('#')).unwrap_or_else(|| panic!("{path}")))
        }
        None => schema,
    }
}

/// A validator for the part of JSON Schema that `narrows schema` uses. A keyword it does not know is an error, so that the schema
/// cannot outgrow it.
fn validate(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let schema = resolve(root, schema);
    let Some(rules) = schema.as_object() else { return Ok(()) };
    let is = |name: &Value| match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        other => panic!("type {other:?}"),
    };
    let each =
        |list: &Value| list.as_array().unwrap().iter().map(|s| validate(root, s, value)).collect::<Vec<_>>();
    for (keyword, rule) in rules {
        let holds = match keyword.as_str() {
            "$schema" | "title" | "description" | "default" | "definitions" | "examples" | "format"
            | "$comment" => true,
            "type" => rule.as_array().map_or_else(|| is(rule), |any| any.iter().any(is)),
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "anyOf" => each(rule).iter().any(Result::is_ok),
            "oneOf" => each(rule).iter().filter(|r| r.is_ok()).count() == 1,
            "allOf" => each(rule).iter().all(Result::is_ok),
            "required" => rule.as_array().unwrap().iter().all(|k| value.get(k.as_str().unwrap()).is_some()),
            "minimum" => value.as_f64().is_none_or(|v| v >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|v| v <= rule.as_f64().unwrap()),
            "minItems" => value.as_array().is_none_or(|v| v.len() as u64 >= rule.as_u64().unwrap()),
            "maxItems" => value.as_array().is_none_or(|v| v.len() as u64 <= rule.as_u64().unwrap()),
            "pattern" => true, // units are the reader's business; its own tests are strict
            "items" => match value.as_array() {
                Some(items) => {
                    for (i, item) in items.iter().enumerate() {
                        validate(root, rule, item).map_err(|e| format!("[{i}]{e}"))?;
                    }
                    true
                }
                None => true,
            },
            "prefixItems" => match (value.as_array(), rule.as_array()) {
                (Some(items), Some(rules)) => {
                    items.iter().zip(rules).all(|(item, rule)| validate(root, rule, item).is_ok())
                }
                _ => true,
            },
            "properties" | "additionalProperties" => match value.as_object() {
                Some(map) => {
                    for (key, item) in map {
                        let of_key = rules
                            .get("properties")
                            .and_then(|p| p.get(key))
                            .or(rules.get("additionalProperties"));
                        match of_key {
                            Some(Value::Bool(false)) => return Err(format!(".{key} is not known")),
                            Some(rule) => validate(root, rule, item).map_err(|e| format!(".{key}{e}"))?,
                            None => {}
                        }
                    }
                    true
                }
                None => true,
            },
            other => panic!("the schema uses `{other}`: teach it to this test"),
        };
        if !holds {
            return Err(format!(": {value} breaks {keyword} {rule}"));
        }
    }
    Ok(())
}

/// Scenario files of the repository.
fn scenarios() -> Vec<std::path::PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
        for path in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "toml")
                && !["claims.toml", "figures.toml"].iter().any(|n| path.ends_with(n))
            {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    for folder in ["papers", "sim/tests/scenarios"] {
        walk(&Path::new(ROOT).join(folder), &mut found);
    }
    found
}

#[test]
fn every_scenario_of_the_repository_fits_the_schema() {
    let schema: Value = serde_json::from_str(&said(&["schema"])).unwrap();
    assert!(
        schema["$schema"].as_str().is_some_and(|s| s.contains("json-schema.org")),
        "{}",
        schema["$schema"]
    );
    let files = scenarios();
    assert!(files.len() > 10, "{}", files.len());
    for path in files {
        let value: Value = toml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        if let Err(e) = validate(&schema, &schema, &value) {
            panic!("{}{e}", path.display());
        }
    }
}

#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    let schema: Value = serde_json::from_str(&said(&["schema"])).unwrap();
    let small: Value = toml::from_str(super::SMALL).unwrap();
    validate(&schema, &schema, &small).unwrap();
    let refused = |old: &str, new: &str| {
        let value: Value = toml::from_str(&super::SMALL.replacen(old, new, 1)).unwrap();
        assert!(validate(&schema, &schema, &value).is_err(), "{new}");
    };
    refused("delay = \"5ms\"", "dealy = \"5ms\"");
    refused("delay = \"5ms\"", "delay = 5");
    refused("rate = \"10Mbit/s\"\n", "");
    refused("size = \"1MB\"", "controller = \"renno\"");
    refused("\"fifo:20p\"", "{ kind = \"fifo\", limt = \"20p\" }");
}
