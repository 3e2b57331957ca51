//! Documents of every form: what is read of them, and what is refused where.

use std::io::{self, BufRead, Read};
use std::ops::ControlFlow;

use proptest::prelude::*;
use tidings_feed::{Document, Entry, Mapping, Outcome, Problem, ReadError, Summary, read};
use tidings_types::Timestamp;

const ABOUT: Document<'static> = Document { feed: "f", now: Timestamp(0), charset: None };

fn mapping(text: &str) -> Mapping {
    Mapping::parse(&format!("{text}\n")).unwrap_or_else(|error| panic!("{error}"))
}

fn entries(source: impl BufRead, mapping: &Mapping, about: &Document<'_>) -> (Vec<Entry>, Result<Summary, ReadError>) {
    let mut entries = Vec::new();
    let end = read(source, mapping, about, |entry| {
        entries.push(entry);
        ControlFlow::Continue(())
    });
    (entries, end)
}

/// The subjects of the events, each as one text.
fn subjects(entries: &[Entry]) -> Vec<String> {
    let subjects = entries.iter().map(|entry| match &entry.outcome {
        Outcome::Event(draft) => {
            let event: serde_json::Value = serde_json::from_str(&draft.json).unwrap();
            event["subjects"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect::<Vec<_>>().join(" ")
        }
        other => format!("{other:?}"),
    });
    subjects.collect()
}

fn told(document: impl AsRef<[u8]>, text: &str) -> Vec<String> {
    let (entries, end) = entries(document.as_ref(), &mapping(text), &ABOUT);
    end.unwrap_or_else(|error| panic!("{error}"));
    subjects(&entries)
}

fn refused(document: impl AsRef<[u8]>, text: &str) -> String {
    entries(document.as_ref(), &mapping(text), &ABOUT).1.unwrap_err().to_string()
}

const XML: &str = r#"kind = "xml"
entries = "/d/e"
id = "{@id}"
topic = "t"
subjects = ["s:{.}"]"#;

const JSON: &str = r#"kind = "json"
entries = "/d"
id = "{id}"
topic = "t"
subjects = ["s:{s}"]"#;

#[test]
fn xml_is_read_in_every_encoding() {
    let text = |encoding: &str| format!("<?xml version='1.0' encoding='{encoding}'?>\n<d><e id='1'>Åsa ä</e></d>");
    let utf16 = |little: bool| -> Vec<u8> {
        let units = text("UTF-16");
        units.encode_utf16().flat_map(|unit| if little { unit.to_le_bytes() } else { unit.to_be_bytes() }).collect()
    };
    let latin = |name: &str| text(name).chars().map(|letter| u8::try_from(letter).unwrap()).collect::<Vec<u8>>();
    let with = |mark: &[u8], bytes: &[u8]| [mark, bytes].concat();
    for document in [
        text("UTF-8").into_bytes(),
        with(b"\xef\xbb\xbf", text("utf-8").as_bytes()),
        utf16(true),
        utf16(false),
        with(b"\xff\xfe", &utf16(true)),
        with(b"\xfe\xff", &utf16(false)),
        latin("ISO-8859-1"),
        latin("ISO-8859-15"),
        latin("windows-1252"),
    ] {
        assert_eq!(told(&document, XML), ["s:Åsa ä"], "{:?}", String::from_utf8_lossy(&document));
    }
    // € is not where ISO-8859-1 has it, and windows-1252 has it elsewhere.
    assert_eq!(told(b"<?xml version='1.0' encoding='iso-8859-15'?><d><e id='1'>\xa4</e></d>", XML), ["s:€"]);
    assert_eq!(told(b"<?xml version='1.0' encoding='windows-1252'?><d><e id='1'>\x80</e></d>", XML), ["s:€"]);
    // The sender's word is stronger than the declaration.
    let about = Document { charset: Some("windows-1252"), ..ABOUT };
    let (found, _) =
        entries(&b"<?xml version='1.0' encoding='utf-8'?><d><e id='1'>\xe5</e></d>"[..], &mapping(XML), &about);
    assert_eq!(subjects(&found), ["s:å"]);
    assert!(refused(b"<?xml version='1.0' encoding='klingon'?><d/>", XML).contains("\"klingon\" is not known"));
    assert!(refused(b"<?xml version='1.0' encoding='utf-16'?><d/>", XML).contains("the bytes are not UTF-16"));
    assert!(refused(b"<d><e id='1'>\xe5</e></d>", XML).contains("not UTF-8"));
    assert!(refused(b"\xff\xfe<\0d\0/\0>\0\x00\xd8", XML).contains("not UTF-16LE"));
}

#[test]
fn texts_attributes_and_sections_are_put_together() {
    let document = "<d>\r\n<e id='&lt;1&#x3e;'>a&amp;b<![CDATA[ <c>&amp; ]]><x>d</x><!-- no -->&#233;</e></d>";
    let (found, _) = entries(document.as_bytes(), &mapping(XML), &ABOUT);
    assert_eq!(found[0].id.as_deref(), Some("<1>"));
    assert_eq!((found[0].position.line, found[0].position.byte), (2, 5));
    assert_eq!(subjects(&found), ["s:a&b <c>&amp; dé"]);
}

#[test]
fn dangers_of_xml_are_refused_where_they_stand() {
    let laughs =
        "<?xml version='1.0'?>\n<!DOCTYPE lolz [<!ENTITY lol 'lol'><!ENTITY lol2 '&lol;&lol;'>]>\n<lolz>&lol2;</lolz>";
    assert_eq!(refused(laughs, XML), "line 2, byte 22: a document type (DTD) is not accepted");
    let outside = "<!DOCTYPE d [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><d><e id='1'>&x;</e></d>";
    assert_eq!(refused(outside, XML), "line 1, byte 0: a document type (DTD) is not accepted");
    assert_eq!(refused("<d>\n<x>&nbsp;</x></d>", XML), "line 2, byte 7: the entity `&nbsp;` is not accepted");
    assert_eq!(refused("<d><x a='&x;'/></d>", XML), "line 1, byte 3: the entity `&x;` is not accepted");
    assert_eq!(refused("<d>&#0;</d>", XML), "line 1, byte 3: `&#0;` is not a character of XML");
    assert!(refused("<d><x></d>", XML).contains("line 1, byte 6"));
    assert!(refused("<d><x a='<'/></d>", XML).contains("an attribute has a `<`"));
    assert!(refused("<d><e id='1' id='2'/></d>", XML).contains("duplicate"));
    assert!(refused("<d><e id='1'>", XML).contains("ends within 2 elements"));
    assert!(refused("<d/><d/>", XML).contains("a second element"));
    assert!(refused("<d/>x", XML).contains("text stands outside"));
    assert!(refused("", XML).contains("no element"));
}

#[test]
fn what_is_beyond_a_limit_is_refused_with_its_name() {
    let limited = |limit: &str| format!("{XML}\nlimits.{limit}");
    let limit = |document: String, limit: &str| {
        let error = entries(document.as_bytes(), &mapping(&limited(limit)), &ABOUT).1.unwrap_err();
        match error.problem {
            Problem::Limit { name, .. } => assert!(limit.starts_with(name), "{limit}: {name}"),
            other => panic!("{limit}: {other}"),
        }
    };
    let many = |what: &str, count: usize| what.repeat(count);
    limit(format!("<d>{}", many("<x>", 200)), "depth = 100");
    limit(format!("<d><x {}/></d>", (0..20).map(|n| format!("a{n}='' ")).collect::<String>()), "attributes = 10");
    limit(format!("<d><x a='{}'/></d>", many("a", 200)), "text_bytes = 100");
    limit(format!("<d><e id='1'>{}</e></d>", many("a", 200)), "text_bytes = 100");
    limit(format!("<d><e id='1'>{}</e></d>", many("a&amp;", 100)), "text_bytes = 100");
    limit(format!("<d><!-- {} --></d>", many("a", 300_000)), "text_bytes = 100");
    limit(format!("<d><e id='1'>{}</e></d>", many("<x/>", 200)), "entry_bytes = 500");
    limit(format!("<d>{}</d>", many("<e id='1'/>", 11)), "entries = 10");
    limit(format!("<d>{}</d>", many("<x/>", 100_000)), "document_bytes = 100000");
    limit(format!("<d>{}</d>", many("<e id='1'/>", 1000)), "held_bytes = 1000\nhold = true");
}

#[test]
fn limits_hold_for_json_and_messagepack_too() {
    let refused = |text: &str, document: String| refused(document, text);
    assert!(refused(JSON, format!("{{\"x\":{}", "[".repeat(200))).contains("`limits.depth`"));
    assert!(
        refused(&format!("{JSON}\nlimits.text_bytes = 10"), "{\"x\":\"12345678901\"}".into())
            .contains("`limits.text_bytes`")
    );
    assert!(refused(JSON, format!("{{\"x\":\"{}\"}}", "a".repeat(2 << 20))).contains("`limits.entry_bytes`"));
    assert!(
        refused(JSON, format!("{{\"d\":[{{\"x\":[{}]}}]}}", "1,".repeat(1 << 20))).contains("`limits.entry_bytes`")
    );
    assert!(refused(JSON, "{\"d\": [1, }".into()).starts_with("line 1, byte 11: expected value"));
    let msgpack = JSON.replace("json", "msgpack");
    // A text that says it has 4 GiB.
    assert!(self::refused(b"\xdb\xff\xff\xff\xff", &msgpack).contains("line 1"));
    assert!(self::refused([0x91; 300], &msgpack).contains("`limits.depth`"));
}

#[test]
fn namespaces_decide_which_element_is_meant() {
    let document = "<a:d xmlns:a='urn:a' xmlns='urn:b'><e id='1' a:id='2'>b</e><a:e id='3' a:id='4'>a</a:e></a:d>";
    let strict = |entries: &str, id: &str| {
        let text = XML.replace("/d/e", entries).replace("{@id}", id);
        let text = format!("{text}\n[namespaces]\nx = \"urn:a\"\ndefault = \"urn:b\"");
        let (found, _) = self::entries(document.as_bytes(), &mapping(&text), &ABOUT);
        found.iter().map(|entry| entry.id.clone().unwrap_or_default()).collect::<Vec<_>>()
    };
    assert_eq!(strict("/x:d/x:e", "{@id}"), ["3"]);
    assert_eq!(strict("/x:d/x:e", "{@x:id}"), ["4"]);
    assert_eq!(strict("/x:d/e", "{@id}"), ["1"]);
    assert_eq!(strict("/d/e", "{@id}"), [""; 0]);
    // Without a table of namespaces only the names count.
    assert_eq!(told(document, XML), ["s:b", "s:a"]);
    // A declaration ends with its element.
    let inner = "<d xmlns='urn:b'><x xmlns='urn:c'/><e id='1'>in</e><e xmlns='' id='2'>out</e></d>";
    assert_eq!(told(inner, &format!("{XML}\n[namespaces]\ndefault = \"urn:b\"")), ["s:in"]);
}

#[test]
fn what_is_around_an_entry_is_that_of_the_last_one() {
    let around = XML.replace("s:{.}", "s:{/d/g/@n | /d/g/t}-{/d/y}").replace("/d/e", "/d/g/e").replace("@id", ".");
    let document = "<d><g n='1'><e>a</e></g><g><t>two</t><e>b</e></g><y>1</y><g><e>c</e></g></d>";
    let found = entries(document.as_bytes(), &mapping(&around), &ABOUT).0;
    assert!(matches!(&found[0].outcome, Outcome::Wrong { field, .. } if field == "subjects"), "{found:?}");
    // What comes behind is known when entries are held; the first group is not mixed with the second.
    assert!(told(document, &format!("hold = true\n{around}"))[..2] == ["s:1-1", "s:two-1"]);
    // A later group does not lend its values to an earlier one that has none.
    let document = "<d><g><e>a</e></g><g><e>b</e><t>two</t></g><g n='3'><e>c</e></g><y>1</y></d>";
    let found = entries(document.as_bytes(), &mapping(&format!("hold = true\n{around}")), &ABOUT).0;
    assert!(matches!(&found[0].outcome, Outcome::Wrong { field, .. } if field == "subjects"), "{found:?}");
    assert_eq!(told(document, &format!("hold = true\n{around}"))[1..], ["s:two-1", "s:3-1"]);
}

#[test]
fn json_ndjson_and_messagepack_are_one_model() {
    let (json, ndjson) = (r#"{"x":[[{"s":1}]],"d":[{"id":1,"s":"a"},[{"id":2.5,"s":true}],{"id":null}]}"#, "ndjson");
    let expected = ["s:a", "s:true"];
    let check = |document: &[u8], kind: &str| {
        let (found, end) = entries(document, &mapping(&JSON.replace("json", kind)), &ABOUT);
        assert!(end.is_ok(), "{kind}: {end:?}");
        assert_eq!(subjects(&found)[..2], expected, "{kind}");
        assert_eq!(found[1].id.as_deref(), Some("2.5"));
        assert!(matches!(&found[2].outcome, Outcome::Wrong { field, .. } if field == "id"), "{kind}");
    };
    check(json.as_bytes(), "json");
    check(format!("\n{json}\r\n\n").as_bytes(), ndjson);
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    let packed = rmp_serde::to_vec(&value).unwrap();
    check(&packed, "msgpack");
    check(&[&packed[..], &packed[..]].concat()[..packed.len()], "msgpack");
    // The last digits of a number of more than 64 bits are lost: it is no id.
    let large = br#"{"d":[{"id":100000000000000000001,"s":1},{"id":18446744073709551615,"s":2}]}"#;
    let (found, _) = entries(&large[..], &mapping(JSON), &ABOUT);
    assert!(matches!(&found[0].outcome, Outcome::Wrong { field, .. } if field == "id"), "{found:?}");
    assert_eq!(found[1].id.as_deref(), Some("18446744073709551615"));
    // A moment of MessagePack is a text of RFC 3339; bytes are nothing.
    let moment = b"\x82\xa2id\xd6\xff\x6b\x07\x1c\x4c\xa1s\xc4\x01a";
    let text = JSON.replace("json", "msgpack").replace("/d", "/").replace("s:{s}", "s:x");
    let (found, _) = entries(&moment[..], &mapping(&text), &ABOUT);
    assert!(found[0].id.as_deref().is_some_and(|id| id.starts_with("2026-") && id.ends_with('Z')), "{found:?}");
}

#[test]
fn a_line_that_is_not_json_is_wrong_and_the_next_is_read() {
    let text = JSON.replace("json", "ndjson").replace("/d", "/");
    let (found, end) = entries(&b"{\"id\":1,\"s\":1}\n{\"id\":2,\n\n{\"id\":3,\"s\":3}"[..], &mapping(&text), &ABOUT);
    assert_eq!(end.unwrap().entries, 3);
    assert!(
        matches!(&found[1].outcome, Outcome::Wrong { problem, .. } if problem.starts_with("is not JSON")),
        "{found:?}"
    );
    assert_eq!((found[1].position.line, found[2].position.line), (2, 4));
    assert_eq!(subjects(&found)[2], "s:3");
}

#[test]
fn an_entry_is_known_by_its_id_and_revision() {
    let id = |extra: &str, document: &str| -> Vec<String> {
        let (found, _) = entries(document.as_bytes(), &mapping(&format!("{XML}\n{extra}")), &ABOUT);
        found
            .iter()
            .map(|entry| match &entry.outcome {
                Outcome::Event(draft) => draft.id.to_string(),
                Outcome::Skipped { reason } => reason.clone(),
                Outcome::Wrong { problem, .. } => problem.clone(),
            })
            .collect()
    };
    assert_eq!(id("", "<d><e id='7'>a</e><e id='7'>b</e></d>"), ["f:7", "the document has it already, as entry 1"]);
    assert_eq!(id("revision = \"{@v}\"", "<d><e id='7' v='2'>a</e></d>"), ["f:7@2"]);
    let content = id("revision = \"content\"", "<d><e id='7'>a</e><e id='7'>b</e><e id='7'>a</e></d>");
    assert_ne!(content[0], content[1]);
    assert!(content[2].contains("as entry 1"), "{content:?}");
    assert_eq!(id("", "<d><e>a</e></d>"), ["the entry has none"]);
    assert_eq!(id("without_id = \"skip\"", "<d><e>a</e></d>"), ["id: the entry has none"]);
    let hashed = id("without_id = \"content\"", "<d><e>a</e><e>b</e><e>a</e></d>");
    assert_ne!(hashed[0], hashed[1]);
    assert!(hashed[2].contains("as entry 1"));
    // An id that an event cannot have becomes a hash, the same each time.
    let odd = id("", "<d><e id='a b'>a</e></d>");
    assert!(odd[0].starts_with("f:#") && odd[0].len() == 35, "{odd:?}");
}

#[test]
fn a_mapping_that_cannot_be_used_is_refused_with_line_and_field() {
    let error = |text: &str| Mapping::parse(text).unwrap_err().to_string();
    let with = |line: &str| error(&format!("{XML}\n{line}"));
    assert_eq!(with("topics = 1").split(", expected").next(), Some("line 6: unknown field `topics`"));
    assert_eq!(
        with("params.x = \"{a/}\""),
        "line 6: `params.x` has the path \"a/\", which ends where a name is expected"
    );
    assert_eq!(
        with("params.x = \"{a\""),
        "line 6: `params.x` has a `{` without a `}`: a brace as text is written twice"
    );
    assert_eq!(
        with("\n[[when]]\npath='a'\nexists=true\n[[when]]\npath='b'\nmatches='('").lines().next(),
        Some("line 12: `when[2].matches` is not a regular expression: regex parse error:")
    );
    assert!(
        with("params.x = { from = \"{a}\", as = \"int\" }").starts_with("line 6: `params.x.as` must be text, html")
    );
    assert!(with("params.x = { from = \"{a}\", table = \"t\" }").contains("names the table `t`"));
    assert!(with("params.x = \"{/d/e/@id}\"").contains("leads into the entries"));
    assert!(
        with("params.x = { from = \"{a}\", as = \"datetime\", zone = \"Mars/Base\" }")
            .contains("`params.x.zone` is not a time zone")
    );
    assert!(with("expires = \"{a}\"\nttl = \"1h\"").starts_with("line 7: `ttl` cannot stand beside `expires`"));
    assert!(with("age_max = \"1w\"\npublished = \"{a}\"").contains("`age_max` must be a time"));
    assert!(with("[event]\ntopic = \"x\"").starts_with("line 7: `event.topic` is not a field"));
    assert!(with("limits.depth = 1000000").starts_with("line 6: `limits.depth` must be at most"));
    assert!(
        with("[namespaces]\na = \"u\"\n[params]\nx = \"{b:c}\"").contains("line 9: `params.x` uses the prefix `b`")
    );
    assert!(error("kind = \"csv\"").starts_with("line 1: unknown variant `csv`"));
    assert_eq!(
        error(&XML.replace("id = \"{@id}\"\n", "")),
        "`id` is missing: it tells one entry from another, for example \"{@id}\""
    );
}

/// Hands out its bytes in the pieces that `cuts` says.
struct Pieces<'a> {
    bytes: &'a [u8],
    cuts: Vec<usize>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(into)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Pieces<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let count = self.cuts.last().copied().unwrap_or(usize::MAX).clamp(1, self.bytes.len().max(1));
        Ok(&self.bytes[..count.min(self.bytes.len())])
    }

    fn consume(&mut self, count: usize) {
        self.bytes = &self.bytes[count..];
        self.cuts.pop();
    }
}

/// An entry as a model: id and text.
fn model() -> impl Strategy<Value = Vec<(u32, String)>> {
    proptest::collection::btree_map(any::<u32>(), "[ -~åß€𝄞]{0,20}", 0..8).prop_map(|all| {
        all.into_iter().map(|(id, text)| (id, text.trim().to_owned())).filter(|(_, text)| !text.is_empty()).collect()
    })
}

fn printed_xml(model: &[(u32, String)]) -> String {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&#62;");
    let entries = model.iter().map(|(id, text)| format!("<x a='>'/><e id='{id}'>{}</e>\n", escaped(text)));
    format!("<d>{}</d>", entries.collect::<String>())
}

fn printed_json(model: &[(u32, String)]) -> String {
    let all = model.iter().map(|(id, text)| serde_json::json!({"y": [{}], "s": text, "id": id}));
    serde_json::json!({ "d": all.collect::<Vec<_>>() }).to_string()
}

proptest! {
    #[test]
    fn a_printed_model_comes_back_wherever_it_is_cut(model in model(), cuts in proptest::collection::vec(1..9_usize, 0..99), utf16: bool) {
        let expected: Vec<(String, String)> = model.iter().map(|(id, text)| (id.to_string(), format!("s:{text}"))).collect();
        for (document, text) in [(printed_xml(&model), XML), (printed_json(&model), JSON)] {
            let bytes = match utf16 {
                true => [0xfeff_u16].into_iter().chain(document.encode_utf16()).flat_map(u16::to_be_bytes).collect(),
                false => document.clone().into_bytes(),
            };
            let mapping = mapping(text);
            let (found, end) = entries(Pieces { bytes: &bytes, cuts: cuts.clone() }, &mapping, &ABOUT);
            prop_assert_eq!(end.unwrap().bytes, bytes.len() as u64);
            let read: Vec<_> = found.iter().map(|entry| entry.id.clone().unwrap()).zip(subjects(&found)).collect();
            prop_assert_eq!(&read, &expected, "{}", document);
            let whole = entries(&bytes[..], &mapping, &ABOUT).0;
            prop_assert_eq!(found, whole);
        }
    }

    #[test]
    fn a_document_that_breaks_off_has_told_its_beginning(model in model(), at: prop::sample::Index) {
        let document = printed_xml(&model);
        let at = at.index(document.len());
        let (found, end) = entries(&document.as_bytes()[..at], &mapping(XML), &ABOUT);
        prop_assert!(end.is_err());
        let whole = entries(document.as_bytes(), &mapping(XML), &ABOUT).0;
        prop_assert_eq!(&found[..], &whole[..found.len()]);
    }
}

/// Entries with these attributes and this inside, among them some that a condition on attributes excludes.
fn some_entries() -> impl Strategy<Value = String> {
    let attribute = |name: &'static str| {
        let values = vec!["", "1", "2", "x &amp; y", " 1 ", "&#49;"];
        proptest::option::of(proptest::sample::select(values))
            .prop_map(move |value| value.map(|value| format!(" {name}='{value}'")).unwrap_or_default())
    };
    let inside = [
        "",
        "text",
        "<a>in &lt;</a>",
        "<a b='2'/><a/>",
        "<!-- c --><![CDATA[<]]>",
        "<e id='9' k='1'>nested</e>",
        "<c/>tail",
    ];
    let entry = (attribute("id"), attribute("k"), attribute("other"), proptest::sample::select(inside.to_vec()));
    let entry = entry.prop_map(|(id, k, other, inside)| match inside {
        "" => format!("<e{id}{other}{k}/>"),
        inside => format!("<e{k}{id}{other}>{inside}</e>"),
    });
    proptest::collection::vec(entry, 0..8).prop_map(|entries| format!("<d>\n{}</d>", entries.join("\n")))
}

proptest! {
    /// An entry that its own attributes exclude is skipped as it begins. A mapping that holds entries reads each of them to its
    /// end: both make the same of every entry.
    #[test]
    fn what_is_skipped_early_is_what_would_be_skipped_late(document in some_entries()) {
        let conditions = [
            "[[when]]\npath = \"@k\"\none_of = [\"1\", \"x & y\"]",
            "[[when]]\npath = \"@k\"\nexists = false\n[[when]]\npath = \"a\"\nexists = true",
            "[[when]]\nany = [{ path = \"@k\", equals = \"1\" }, { path = \"@id\", below = 2 }]",
            "[[when]]\npath = \"a/@b\"\nequals = \"2\"\n[[when]]\npath = \"@k\"\nequals = \"1\"",
        ];
        for conditions in conditions {
            let early = mapping(&format!("{XML}\n{conditions}"));
            let late = mapping(&format!("{XML}\nhold = true\n{conditions}"));
            let (early, late) = (entries(document.as_bytes(), &early, &ABOUT), entries(document.as_bytes(), &late, &ABOUT));
            prop_assert_eq!(early.0, late.0, "{}", conditions);
            prop_assert_eq!(early.1.unwrap(), late.1.unwrap());
        }
    }
}

/// Each entry looks for a text among all elements around the entries, and finds none.
#[test]
fn a_document_whose_entries_cost_too_much_is_refused() {
    let cheap = XML.replace("s:{.}", "s:{/d/x}");
    let document =
        |around: usize, entries: usize| format!("<d>{}{}</d>", "<x/>".repeat(around), "<e id='1'/>".repeat(entries));
    for more in ["", "\nhold = true"] {
        let text = format!("{cheap}{more}");
        told(document(1000, 2000), &text);
        let refusal = refused(document(40_000, 2000), &text);
        assert!(refusal.contains(" times: read it into a table (`tables`)"), "{refusal}");
    }
}
