//! Spans as an `ExportTraceServiceRequest` of OTLP, in Protobuf.
//!
//! The writer is here and not shared with that of the client protocol: it is twenty lines, writes bottom up, and knows fixed
//! 64-bit numbers, which that protocol does not have.
//!
//! Source: opentelemetry-proto 1.3, `collector/trace/v1/trace_service.proto` and `trace/v1/trace.proto`.

use super::{Span, Value};

/// The wire types of fields.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
/// `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// The spans of one server, which `resource` describes, such as `service.name`.
pub fn encode(resource: &[(&'static str, Value)], spans: &[Span]) -> Vec<u8> {
    let mut attributes = Vec::new();
    put_attributes(&mut attributes, 1, resource);
    let mut scope = Vec::new();
    put_bytes(&mut scope, 1, b"tidings");
    let mut of_scope = Vec::new();
    put_bytes(&mut of_scope, 1, &scope);
    for span in spans {
        put_bytes(&mut of_scope, 2, &encode_span(span));
    }
    let mut of_resource = Vec::with_capacity(of_scope.len() + attributes.len() + 16);
    put_bytes(&mut of_resource, 1, &attributes);
    put_bytes(&mut of_resource, 2, &of_scope);
    let mut request = Vec::with_capacity(of_resource.len() + 8);
    put_bytes(&mut request, 1, &of_resource);
    request
}

fn encode_span(span: &Span) -> Vec<u8> {
    let Span { name, kind, context, parent, began, ended, attributes, has_failed } = span;
    let mut out = Vec::with_capacity(256);
    put_bytes(&mut out, 1, &context.trace.0);
    put_bytes(&mut out, 2, &context.span.0);
    if let Some(state) = &context.state {
        put_bytes(&mut out, 3, state.as_bytes());
    }
    if let Some(parent) = parent {
        put_bytes(&mut out, 4, &parent.0);
    }
    put_bytes(&mut out, 5, name.as_bytes());
    put_number(&mut out, 6, *kind as u64);
    put_fixed(&mut out, 7, *began);
    put_fixed(&mut out, 8, *ended);
    put_attributes(&mut out, 9, attributes);
    if *has_failed {
        let mut status = Vec::new();
        put_number(&mut status, 3, ERROR);
        put_bytes(&mut out, 15, &status);
    }
    out
}

fn put_attributes(out: &mut Vec<u8>, field: u64, attributes: &[(&'static str, Value)]) {
    for (name, value) in attributes {
        let mut any = Vec::new();
        match value {
            Value::Text(text) => put_bytes(&mut any, 1, text.as_bytes()),
            Value::Number(number) => put_number(&mut any, 3, number.cast_unsigned()),
        }
        let mut pair = Vec::with_capacity(name.len() + any.len() + 4);
        put_bytes(&mut pair, 1, name.as_bytes());
        put_bytes(&mut pair, 2, &any);
        put_bytes(out, field, &pair);
    }
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_number(out: &mut Vec<u8>, field: u64, number: u64) {
    put_varint(out, field << 3 | VARINT);
    put_varint(out, number);
}

fn put_fixed(out: &mut Vec<u8>, field: u64, number: u64) {
    put_varint(out, field << 3 | FIXED64);
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    //! The judge is `prost`, with the messages of the schema as structs.

    use proptest::prelude::*;
    use prost::Message;
    use tidings_types::{SpanId, TraceContext, TraceId};

    use super::super::Kind;
    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Request {
        #[prost(message, repeated, tag = "1")]
        resource_spans: Vec<ResourceSpans>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct ResourceSpans {
        #[prost(message, optional, tag = "1")]
        resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        scope_spans: Vec<ScopeSpans>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Resource {
        #[prost(message, repeated, tag = "1")]
        attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct ScopeSpans {
        #[prost(message, optional, tag = "1")]
        scope: Option<Scope>,
        #[prost(message, repeated, tag = "2")]
        spans: Vec<ProstSpan>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Scope {
        #[prost(string, tag = "1")]
        name: String,
    }

    #[derive(Clone, PartialEq, Message)]
    struct ProstSpan {
        #[prost(bytes = "vec", tag = "1")]
        trace_id: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        span_id: Vec<u8>,
        #[prost(string, tag = "3")]
        trace_state: String,
        #[prost(bytes = "vec", tag = "4")]
        parent_span_id: Vec<u8>,
        #[prost(string, tag = "5")]
        name: String,
        #[prost(int32, tag = "6")]
        kind: i32,
        #[prost(fixed64, tag = "7")]
        start: u64,
        #[prost(fixed64, tag = "8")]
        end: u64,
        #[prost(message, repeated, tag = "9")]
        attributes: Vec<KeyValue>,
        #[prost(message, optional, tag = "15")]
        status: Option<Status>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Status {
        #[prost(int32, tag = "3")]
        code: i32,
    }

    #[derive(Clone, PartialEq, Message)]
    struct KeyValue {
        #[prost(string, tag = "1")]
        key: String,
        #[prost(message, optional, tag = "2")]
        value: Option<AnyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct AnyValue {
        #[prost(oneof = "AnyKind", tags = "1, 3")]
        kind: Option<AnyKind>,
    }

    #[derive(Clone, PartialEq, prost::Oneof)]
    enum AnyKind {
        #[prost(string, tag = "1")]
        Text(String),
        #[prost(int64, tag = "3")]
        Number(i64),
    }

    fn attributes(attributes: &[(&'static str, Value)]) -> Vec<KeyValue> {
        let pair = |(name, value): &(&'static str, Value)| {
            let kind = match value {
                Value::Text(text) => AnyKind::Text(text.to_string()),
                Value::Number(number) => AnyKind::Number(*number),
            };
            KeyValue { key: (*name).to_owned(), value: Some(AnyValue { kind: Some(kind) }) }
        };
        attributes.iter().map(pair).collect()
    }

    fn expected(span: &Span) -> ProstSpan {
        ProstSpan {
            trace_id: span.context.trace.0.to_vec(),
            span_id: span.context.span.0.to_vec(),
            trace_state: span.context.state.as_deref().unwrap_or_default().to_owned(),
            parent_span_id: span.parent.map(|parent| parent.0.to_vec()).unwrap_or_default(),
            name: span.name.to_owned(),
            kind: span.kind as i32,
            start: span.began,
            end: span.ended,
            attributes: attributes(&span.attributes),
            status: span.has_failed.then_some(Status { code: 2 }),
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i64>().prop_map(Value::Number),
            ".{0,300}".prop_map(|text: String| Value::from(text.as_str()))
        ]
    }

    fn any_span() -> impl Strategy<Value = Span> {
        let ids = (any::<[u8; 16]>(), any::<[u8; 8]>(), any::<Option<[u8; 8]>>(), any::<bool>());
        let rest = (any::<u64>(), any::<u64>(), prop::collection::vec(any_value(), 0..4), any::<bool>(), 0..3);
        (ids, rest).prop_map(|((trace, span, parent, has_state), (began, ended, values, has_failed, kind))| Span {
            name: "job",
            kind: [Kind::Internal, Kind::Server, Kind::Client][kind as usize],
            context: TraceContext {
                trace: TraceId(trace),
                span: SpanId(span),
                is_sampled: true,
                state: has_state.then(|| "a=b".into()),
            },
            parent: parent.map(SpanId),
            began,
            ended,
            attributes: values.into_iter().map(|value| ("name", value)).collect(),
            has_failed,
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_another_implementation_reads(spans in prop::collection::vec(any_span(), 0..5)) {
            let resource = [("service.name", Value::from("tidings"))];
            let read = Request::decode(encode(&resource, &spans).as_slice()).unwrap();
            let [ResourceSpans { resource: read_resource, scope_spans }] = read.resource_spans.try_into().unwrap();
            prop_assert_eq!(read_resource.unwrap().attributes, attributes(&resource));
            let [ScopeSpans { scope, spans: read_spans }] = scope_spans.try_into().unwrap();
            prop_assert_eq!(scope.unwrap().name, "tidings");
            prop_assert_eq!(read_spans, spans.iter().map(expected).collect::<Vec<_>>());
        }
    }
}
