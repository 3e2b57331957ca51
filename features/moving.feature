# The configuration that is imported is that of a server alone.
@one
Feature: Moving over from Centrifugo
  Apps keep their SDKs and tokens, the backend keeps its calls. Only the configuration is made anew, and by a command.

  Scenario: Apps and backends find their server again
    Given the server was started with a configuration of Centrifugo that has "engine.type"
    And Ada's app is connected and follows "room:1"
    When the backend publishes 2 times in "room:1"
    Then Ada's app gets the publications 1 and 2

  Scenario: What has no counterpart is named, and secrets are kept
    Given the server was started with a configuration of Centrifugo that has "engine.type"
    Then the operator was told what to do about "engine.type"
    And no secret stands in the new configuration, or was told

  Scenario: The token of a stranger opens the new server as little as the old one
    Given the server was started with a configuration of Centrifugo that has "engine.type"
    When somebody connects with a token that is not ours
    Then the connection is refused
