//! RSS 0.9x, 1.0 and 2.0, and Atom 1.0 and 0.3, under one set of names.
//!
//! A mapping of the kind `rss` has these entries, and its paths may use these names: `{title}` is the title of the entry in
//! whichever format the document has. Sources: RSS 2.0 and 1.0, RFC 4287, Dublin Core, Media RSS.

/// Where the entries are.
pub(crate) const ENTRIES: &str = "/rss/channel/item | /rdf:RDF/rss1:item | /rdf:RDF/rss09:item | /rdf:RDF/rss1:channel/rss1:item \
     | /atom:feed/atom:entry | /atom03:feed/atom03:entry";

/// Prefixes that such a mapping has.
pub(crate) const NAMESPACES: [(&str, &str); 9] = [
    ("rdf", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rss1", "http://purl.org/rss/1.0/"),
    ("rss09", "http://my.netscape.com/rdf/simple/0.9/"),
    ("atom", "http://www.w3.org/2005/Atom"),
    ("atom03", "http://purl.org/atom/ns#"),
    ("dc", "http://purl.org/dc/elements/1.1/"),
    ("dcterms", "http://purl.org/dc/terms/"),
    ("content", "http://purl.org/rss/1.0/modules/content/"),
    ("media", "http://search.yahoo.com/mrss/"),
];

/// Names and what they mean.
pub(crate) const NAMES: [(&str, &str); 11] = [
    ("id", "guid | atom:id | atom03:id | @rdf:about | link | rss09:link"),
    ("title", "title | atom:title | rss1:title | rss09:title | atom03:title | dc:title"),
    (
        "link",
        "link | atom:link[@rel='alternate']/@href | atom:link[!@rel]/@href | rss1:link | rss09:link \
         | atom03:link[@rel='alternate']/@href | atom:link/@href",
    ),
    (
        "summary",
        "description | atom:summary | rss1:description | rss09:description | atom03:summary | dc:description \
         | content:encoded | atom:content | atom03:content",
    ),
    ("content", "content:encoded | atom:content | atom03:content | description | atom:summary | rss1:description"),
    ("author", "atom:author/atom:name | atom03:author/atom03:name | dc:creator | author"),
    (
        "published",
        "pubDate | atom:published | dc:date | dcterms:issued | atom03:issued | atom:updated | atom03:modified",
    ),
    ("updated", "atom:updated | dcterms:modified | atom03:modified | dc:date | pubDate"),
    ("category", "category | atom:category/@term | dc:subject"),
    (
        "image",
        "media:thumbnail/@url | media:content[@medium='image']/@url | media:content[@type^='image/']/@url \
         | enclosure[@type^='image/']/@url | atom:link[@rel='enclosure'][@type^='image/']/@href",
    ),
    (
        "feed_title",
        "/rss/channel/title | /atom:feed/atom:title | /rdf:RDF/rss1:channel/rss1:title \
         | /rdf:RDF/rss09:channel/rss09:title | /atom03:feed/atom03:title",
    ),
];
