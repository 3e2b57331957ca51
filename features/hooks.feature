Feature: The backend decides
  The server can ask the backend who somebody is and where they may go, and does as it says.

  Background:
    Given the backend decides who comes in, and lets in Ada, into "match:1"

  Scenario: Ada comes in, and is where the backend wants her to be
    Given Ada's app comes without a token
    When the backend tells of a "goal" about "match:1"
    Then Ada's app gets the event once
    And the backend was asked about Ada, once

  Scenario: Eve is sent away
    When Eve's app tries to come without a token
    Then the connection is refused as the backend said
    And the backend was asked about Eve, once

  Scenario: Whoever has a token is not asked about
    Given Bob's app is connected and follows "match:1"
    And Ada's app comes without a token
    When the backend tells of a "goal" about "match:1"
    Then Bob's app gets the event once
    And the backend was asked about Ada, once
