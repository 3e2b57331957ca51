"""Centrifugo's Python library for the server API (cent), doing what the test asks for.

Arguments: the address of the API, the key. From standard input it takes {"seq", "method", "params"}: a method of the API with
the parameters that the library has. It answers {"seq", "result"}, {"seq", "error": {"code", "message"}} if the API refused,
or {"seq", "status"} if the HTTP status is not 200. A batch has {"commands": [{method: params}], "parallel"}.
"""

import json
import sys

import cent


def request_of(method, params):
    if method == "batch":
        commands = [request_of(*named) for command in params["commands"] for named in command.items()]
        return cent.BatchRequest(requests=commands, parallel=params.get("parallel"))
    name = "".join(word.capitalize() for word in method.split("_"))
    return getattr(cent, f"{name}Request")(**params)


def answer(client, method, params):
    try:
        result = getattr(client, method)(request_of(method, params))
        return {"result": result.model_dump(exclude_none=True, serialize_as_any=True)}
    except cent.CentApiResponseError as refusal:
        return {"error": {"code": refusal.code, "message": refusal.message}}
    except cent.CentUnauthorizedError:
        return {"status": 401}
    except cent.CentTransportError as error:
        return {"status": error.status_code}


def main():
    address, key = sys.argv[1:]
    print(json.dumps({"library": "cent"}), flush=True)
    with cent.Client(address, key) as client:
        for line in sys.stdin:
            wanted = json.loads(line)
            told = answer(client, wanted["method"], wanted["params"])
            print(json.dumps({"seq": wanted["seq"], **told}), flush=True)


main()
