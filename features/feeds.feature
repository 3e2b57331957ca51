Feature: Feeds
  A provider of data hands in documents. Each entry is sent once, whatever the provider does.

  Background:
    Given Ada's phone is subscribed to "goal" of "match:1"

  Scenario: A feed that repeats, reorders, breaks off in the middle and comes back sends each event once
    Given a provider whose feed is polled
    When the feed has the goals "1 2"
    And the feed has the goals "2 1 1"
    And the feed breaks off behind the goals "3 4"
    And the feed has the goals "5 4 3 2 1"
    Then 5 goals of the feed were sent, each once
    And Ada's phone shows 5 goals

  Scenario: A server that dies sends no entry twice
    Given a provider whose feed is polled
    When the feed has the goals "1 2"
    And the server is killed and started again
    And the feed has the goals "3 2 1"
    Then 3 goals of the feed were sent, each once
    And Ada's phone shows 3 goals

  Scenario: A server that dies again and again while it reads loses no entry and sends none twice
    Given a provider whose feed is polled
    When the server is killed 8 times while the feed grows to 400 goals
    Then 400 goals of the feed were sent, each once
    And Ada's phone shows 400 goals

  Scenario: A document that is posted again after a failure sends each event once
    Given a feed that takes documents
    When the provider posts the goals "1 2"
    And the provider posts the goals "1 2 3"
    Then 3 goals of the feed were sent, each once
    And Ada's phone shows 3 goals

  Scenario: A wrong entry costs only itself
    Given a feed that takes documents
    When the provider posts the goals "1 nobody 2"
    Then 2 goals of the feed were sent, each once
    And the operator sees 1 wrong entry of the feed
