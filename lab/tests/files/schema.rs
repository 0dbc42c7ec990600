use narrows_lab::file::Family;
use narrows_lab::schema::json_schema;

#[test]
fn every_algorithm_and_parameter_is_in_the_schema() {
    let schema = json_schema();
    for family in [Family::Queue, Family::Controller, Family::Stack, Family::AckWindow] {
        let choices = &schema["definitions"][family.noun()]["anyOf"];
        for algorithm in family.algorithms() {
            let is_table = |c: &&serde_json::Value| c["properties"][family.key()]["const"] == algorithm.name;
            let table = choices.as_array().and_then(|c| c.iter().find(is_table)).expect(algorithm.name);
            for parameter in algorithm.parameters {
                let described = &table["properties"][parameter.name];
                assert_eq!(
                    described["description"], parameter.meaning,
                    "{} of {}",
                    parameter.name, algorithm.name
                );
            }
        }
    }
}

#[test]
fn keys_carry_their_meaning_and_their_units() {
    let link = &json_schema()["definitions"]["Link"]["properties"];
    assert_eq!(link["rate"]["description"], "Rate of whole IP packets.");
    assert!(link["rate"]["pattern"].as_str().is_some_and(|p| p.contains("bit")), "{link}");
    assert_eq!(json_schema()["definitions"]["Link"]["additionalProperties"], false);
}

#[test]
fn every_reference_of_the_schema_leads_somewhere() {
    fn references<'v>(value: &'v serde_json::Value, found: &mut Vec<&'v str>) {
        match value {
            serde_json::Value::Object(map) => {
                found.extend(map.get("$ref").and_then(|r| r.as_str()));
                map.values().for_each(|v| references(v, found));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|v| references(v, found)),
            _ => {}
        }
    }
    let schema = json_schema();
    let mut found = Vec::new();
    references(&schema, &mut found);
    assert!(found.len() > 10);
    for reference in found {
        assert!(
            schema.pointer(reference.trim_start_matches('#')).is_some_and(|d| d.is_object()),
            "{reference}"
        );
    }
}
