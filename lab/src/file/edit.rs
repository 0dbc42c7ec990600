//! Setting one key of a scenario from outside (`--set`, sweeps), by editing the TOML text, so that what is then read, refused
//! and shown is a file like any other. [`super`] documents the key paths.

use super::error::Refusal;
use super::part::{Family, Inner};
use super::resolve::{TCP_KEYS, UDP_KEYS};
use toml_edit::{DocumentMut, InlineTable, Item, TableLike, Value};

const SECTIONS: [&str; 4] = ["host", "router", "link", "flow"];

/// Sets `key` to `value`, which is TOML or, failing that, a text. If the file sweeps the key, it no longer does.
pub(crate) fn set(document: &mut DocumentMut, key: &str, value: &str) -> Result<(), Refusal> {
    let path: Vec<&str> = key.split('.').map(str::trim).collect();
    if path.iter().any(|segment| segment.is_empty()) {
        return Err(Refusal::new(
            format!("\"{key}\" is not a key"),
            "write for example flow.bulk.window or run.duration",
        ));
    }
    if let Some(sweep) = document.get_mut("sweep") {
        leave_out(sweep, key, &path);
    }
    let value = to_value(value);
    match path[..] {
        [section @ ("run" | "record"), _, ..] => {
            let table = document.entry(section).or_insert_with(toml_edit::table);
            put(table_of(table, section)?, &path[1..], value)
        }
        [section, _, ..] if SECTIONS.contains(&section) => {
            let (mut tables, rest) = addressed(document, section, &path[1..])?;
            tables.iter_mut().try_for_each(|table| put(*table, rest, value.clone()))
        }
        [section] if SECTIONS.contains(&section) || ["run", "record"].contains(&section) => {
            let advice = format!("name one of its keys, for example {}", example(section));
            Err(Refusal::new(format!("{section} is a section, not a key"), advice))
        }
        _ => Err(Refusal::unknown("section", path[0], ["run", "record", "host", "router", "link", "flow"])),
    }
}

/// Removes a key from a sweep, whether written `"flow.window"` or `flow.window`, alone or together with others.
fn leave_out(sweep: &mut Item, key: &str, path: &[&str]) {
    if let Some(groups) = sweep.get_mut("together").and_then(Item::as_array_of_tables_mut) {
        for group in groups.iter_mut() {
            leave_out_of(group, key, path);
        }
    }
    if let Some(table) = sweep.as_table_like_mut() {
        leave_out_of(table, key, path);
    }
}

fn leave_out_of(table: &mut dyn TableLike, key: &str, path: &[&str]) {
    table.remove(key);
    if let [first, rest @ ..] = path
        && let Some(inner) = table.get_mut(first).and_then(Item::as_table_like_mut)
    {
        leave_out_of(inner, &rest.join("."), rest);
        if inner.is_empty() {
            table.remove(first);
        }
    }
}

/// How a text from outside is to be understood: `3`, `true`, `[3, 4]`, `{ name = "becc" }` and `"3"` as TOML, `30ms` as text.
fn to_value(text: &str) -> Value {
    match text.parse::<Value>() {
        Ok(Value::Datetime(_)) | Err(_) => Value::from(text),
        Ok(value) => value.decorated("", ""),
    }
}

fn example(section: &str) -> &'static str {
    match section {
        "run" => "run.duration",
        "record" => "record.flows",
        "host" => "host.NAME.timer_phase",
        "router" => "router.NAME.name",
        "link" => "link.A>B.rate",
        _ => "flow.NAME.window",
    }
}

/// The tables `path` speaks of (one if it begins with a name, otherwise all), and the rest of the path.
fn addressed<'d, 'p>(
    document: &'d mut DocumentMut,
    section: &str,
    path: &'p [&'p str],
) -> Result<(Vec<&'d mut dyn TableLike>, &'p [&'p str]), Refusal> {
    let tables: Vec<&mut dyn TableLike> = match document.get_mut(section) {
        Some(Item::ArrayOfTables(tables)) => tables.iter_mut().map(|t| t as &mut dyn TableLike).collect(),
        Some(Item::Value(Value::Array(items))) => items
            .iter_mut()
            .filter_map(|v| v.as_inline_table_mut())
            .map(|t| t as &mut dyn TableLike)
            .collect(),
        _ => Vec::new(),
    };
    let names: Vec<String> = tables.iter().enumerate().map(|(i, t)| name(*t, section, i)).collect();
    let known = || names.iter().map(String::as_str);
    if known().any(|n| n == path[0]) {
        if path.len() == 1 {
            let advice = format!("add one of its keys: {section}.{}.KEY", path[0]);
            return Err(Refusal::new(format!("{} is a {section}, not a key", path[0]), advice));
        }
        let named = tables.into_iter().zip(&names).filter(|(_, n)| *n == path[0]).map(|(t, _)| t);
        return Ok((named.collect(), &path[1..]));
    }
    if path.len() > 1 && family(path[0]).is_none() && !["backward", "class"].contains(&path[0]) {
        return Err(Refusal::unknown(section, path[0], known()));
    }
    let speaks = |table: &dyn TableLike| table.get("transport").and_then(Item::as_str) == Some("udp");
    let fits = |table: &&mut dyn TableLike| {
        let udp = speaks(&**table);
        section != "flow" || !(udp && TCP_KEYS.contains(&path[0]) || !udp && UDP_KEYS.contains(&path[0]))
    };
    let all: Vec<&mut dyn TableLike> = tables.into_iter().filter(fits).collect();
    if all.is_empty() {
        let advice = format!("declare a [[{section}]] that has it");
        return Err(Refusal::new(format!("no {section} has a key {}", path[0]), advice));
    }
    Ok((all, path))
}

/// What an element is called in key paths.
fn name(table: &dyn TableLike, section: &str, index: usize) -> String {
    let text = |key| table.get(key).and_then(Item::as_str);
    match (text("name"), section) {
        (Some(name), _) => name.into(),
        (None, "link") => format!("{}>{}", text("from").unwrap_or_default(), text("to").unwrap_or_default()),
        (None, _) => format!("{section}-{}", index + 1),
    }
}

/// The family of the algorithms that `key` names.
fn family(key: &str) -> Option<Family> {
    match key {
        "queue" => Some(Family::Queue),
        "ack_window" => Some(Family::AckWindow),
        "controller" => Some(Family::Controller),
        "stack" | "receiver_stack" => Some(Family::Stack),
        _ => None,
    }
}

fn put(table: &mut dyn TableLike, path: &[&str], value: Value) -> Result<(), Refusal> {
    match path {
        [key] => {
            assign(table, key, value);
            Ok(())
        }
        ["backward", rest @ ..] => {
            let key = rest.first().copied().filter(|key| matches!(*key, "queue" | "ack_window" | "class"));
            let both = key.and_then(|key| table.get(key)).cloned();
            let item = table.entry("backward").or_insert(Item::Value(InlineTable::new().into()));
            let backward = table_of(item, "backward")?;
            if let ([key, _, ..], Some(both)) = (rest, both)
                && backward.get(key).is_none()
            {
                backward.insert(key, both);
            }
            put(backward, rest, value)
        }
        ["class", name, rest @ ..] => put_class(table, name, rest, value),
        [key, rest @ ..] => {
            let Some(family) = family(key) else {
                return Err(Refusal::new(
                    format!("`{key}` has no parts"),
                    format!("leave out .{}", rest.join(".")),
                ));
            };
            if *key == "receiver_stack" && table.get(key).is_none() {
                let stack = table.get("stack").cloned().unwrap_or_else(|| toml_edit::value(family.default()));
                table.insert(key, stack);
            }
            let item = table.entry(key).or_insert_with(|| toml_edit::value(family.default()));
            put_part(item, key, family, rest, value)
        }
        [] => Ok(()),
    }
}

/// Sets a key of the class of this name.
fn put_class(table: &mut dyn TableLike, name: &str, path: &[&str], value: Value) -> Result<(), Refusal> {
    let [key] = path else {
        let advice = format!("name one of its keys, for example class.{name}.rate");
        return Err(Refusal::new(format!("`class.{name}` is a class, not a key"), advice));
    };
    let classes: Vec<&mut dyn TableLike> = match table.get_mut("class") {
        Some(Item::ArrayOfTables(tables)) => tables.iter_mut().map(|t| t as &mut dyn TableLike).collect(),
        Some(Item::Value(Value::Array(items))) => {
            let tables = items.iter_mut().filter_map(|v| v.as_inline_table_mut());
            tables.map(|t| t as &mut dyn TableLike).collect()
        }
        _ => Vec::new(),
    };
    let own = |t: &dyn TableLike| t.get("name").and_then(Item::as_str).unwrap_or_default().to_string();
    let known: Vec<String> = classes.iter().map(|t| own(*t)).collect();
    let at = known.iter().position(|n| n == name);
    let Some(class) = at.and_then(|at| classes.into_iter().nth(at)) else {
        return Err(Refusal::unknown("class", name, known.iter().map(String::as_str)));
    };
    assign(class, key, value);
    Ok(())
}

/// Sets a parameter of an algorithm, or of the one inside.
fn put_part(item: &mut Item, key: &str, family: Family, path: &[&str], value: Value) -> Result<(), Refusal> {
    if let Some(text) = item.as_str() {
        *item = Item::Value(spelled_out(family, text).into());
    }
    let table = table_of(item, key)?;
    match path {
        [parameter] => {
            assign(table, parameter, value);
            Ok(())
        }
        ["inner", rest @ ..] => {
            let name = table.get(family.key()).and_then(Item::as_str).unwrap_or_default();
            let inner = match family.algorithm(name).map(|a| a.inner) {
                Some(Inner::Default(inner)) => inner,
                Some(Inner::Optional) => family.default(),
                _ => {
                    return Err(Refusal::new(
                        format!("{name} contains no other {}", family.noun()),
                        "leave out .inner",
                    ));
                }
            };
            put_part(
                table.entry("inner").or_insert_with(|| toml_edit::value(inner)),
                "inner",
                family,
                rest,
                value,
            )
        }
        _ => Err(Refusal::new(
            format!("`{}` has no parts", path.join(".")),
            "name a parameter, or inner and a parameter",
        )),
    }
}

/// `"fifo:128KiB"` as a table.
fn spelled_out(family: Family, text: &str) -> InlineTable {
    let (name, first) = text.split_once(':').unwrap_or((text, ""));
    let mut table = InlineTable::new();
    table.insert(family.key(), name.into());
    if let Some(parameter) =
        family.algorithm(name).and_then(|a| a.parameters.first()).filter(|_| !first.is_empty())
    {
        table.insert(parameter.name, to_value(first));
    }
    table
}

fn assign(table: &mut dyn TableLike, key: &str, value: Value) {
    match table.get_mut(key) {
        // Spaces and comments around the old value stay.
        Some(Item::Value(old)) => {
            let decor = old.decor().clone();
            *old = value;
            *old.decor_mut() = decor;
        }
        _ => {
            table.insert(key, Item::Value(value));
        }
    }
}

fn table_of<'a>(item: &'a mut Item, key: &str) -> Result<&'a mut dyn TableLike, Refusal> {
    let noun = item.type_name();
    item.as_table_like_mut()
        .ok_or_else(|| Refusal::new(format!("`{key}` is of type {noun}, not a table"), "write it as a table"))
}
