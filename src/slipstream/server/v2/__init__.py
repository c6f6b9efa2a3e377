"""`/v2`: the API beyond DriftQ's. Calls that carry messages are in `hot`, everything else is an ordinary ASGI route.

Every call decodes into and answers with the structs of `slipstream.api`, and stands once in `endpoints`, from which the
routes and the OpenAPI document are made.
"""
